"""DynaRule+: a search that looks ahead, and rules that are read token by token; not the paper's."""

from __future__ import annotations

from typing import Any

from . import component
from .memory import Memory


@component
class DynaRulePlus(Memory):
    """Before every step a search asks for the rules of that step and of the way from there to what is asked.

    What it found stands in the place of what the last one found, read by the frozen base as it reads its prompt.

    Attributes
    ----------
    lookahead : int or None
        Backward levels; 0 goes by the state that a chain has reached alone. None: as in training.
    """

    name = "dynarule-plus"
    title = "DynaRule+"
    stepwise = True

    lookahead: Any = None

    @property
    def label(self) -> str:
        """Name in reports."""
        levels = {None: "", 0: ", no look-ahead"}.get(self.lookahead, f", {self.lookahead} backward levels")
        return super().label + levels

    @property
    def changes(self) -> dict[str, Any]:
        """The number of backward levels, where it is given."""
        return {} if self.lookahead is None else {"lookahead": int(self.lookahead)}
