"""DynaRule: the confidence layer reads the rules again at every ``<search>``."""

from __future__ import annotations

from . import component
from .memory import Memory


@component
class DynaRule(Memory):
    """Rules in every layer; ``<search>`` between two steps replaces those of the confidence layer."""

    name = "dynarule"
    title = "DynaRule"
    stepwise = True
