"""DynaRule+: a search that looks ahead, and rules that are read token by token; not the paper's."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from . import component
from .memory import Memory

KINDS = {"lookahead": int, "score_weight": float, "score_limit": float, "top_k": int}


@component
class DynaRulePlus(Memory):
    """Before every step a search asks for the rules of that step and of the way from there to what is asked.

    What it found stands in the place of what the last one found, read by the frozen base as it reads its prompt.

    Attributes
    ----------
    lookahead : int or None
        Backward levels; 0 goes by the state that a chain has reached alone. None: as in training.
    score_weight : float or None
        What a rule's score counts for in the attention to its tokens; 0 leaves it to reading which of the rules found
        is meant. None: the adapter's own.
    score_limit : float or None
        Most that a score takes from that attention. None: the adapter's own.
    kept : int or None
        Rules that a search keeps. None: the adapter's own number.
    """

    name = "dynarule-plus"
    title = "DynaRule+"
    stepwise = True

    lookahead: Any = None
    score_weight: Any = None
    score_limit: Any = field(default=None, metadata={"later": True})
    kept: Any = field(default=None, metadata={"later": True})

    @property
    def label(self) -> str:
        """Name in reports."""
        levels = {None: "", 0: ", no look-ahead"}.get(self.lookahead, f", {self.lookahead} backward levels")
        weight = {None: "", 0: ", scores not read"}.get(self.score_weight, f", scores x {self.score_weight}")
        weight += "" if self.score_limit is None else f", at most {self.score_limit}"
        kept = "" if self.kept is None else f", {self.kept} kept"
        return super().label + levels + weight + kept

    @property
    def changes(self) -> dict[str, Any]:
        """Backward levels, weight and limit of scores, and rules kept, where they are given."""
        given = {
            "lookahead": self.lookahead,
            "score_weight": self.score_weight,
            "score_limit": self.score_limit,
            "top_k": self.kept,
        }
        return {name: KINDS[name](value) for name, value in given.items() if value is not None}
