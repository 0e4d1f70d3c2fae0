"""DynaRule+: a search that looks ahead, and rules that are read token by token; not the paper's."""

from __future__ import annotations

from . import component
from .memory import Memory


@component
class DynaRulePlus(Memory):
    """Before every step a search asks for the rules of that step and of the way from there to what is asked.

    What it found stands in the place of what the last one found, read by the frozen base as it reads its prompt.
    """

    name = "dynarule-plus"
    title = "DynaRule+"
    stepwise = True
