"""Levels that rise with success: lists get longer when the lookups in the present ones come out right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruleworld_data.spec import RULE_TYPES, SUBTASKS
from torch import Tensor

from .stream import LADDERS

KEPT = 0.98
"""Weight of the past in a success rate, per observation."""
ENOUGH = 40
"""Observations of every kind before a level can rise."""
KINDS: dict[str, tuple[str, ...]] = {"terse": ("terse",), "recital": RULE_TYPES, "questions": SUBTASKS}


class Curriculum:
    """Success rates by kind, and the level of each sort of document.

    A rate is a running mean over all documents, half of which are at the level and half below.
    """

    def __init__(self, raise_at: float, raise_least: float) -> None:
        self.raise_at, self.raise_least = raise_at, raise_least
        self.levels = dict.fromkeys(LADDERS, 0)
        self.rates: dict[str, float] = {}
        self.seen: dict[str, int] = {}

    def size(self, name: str) -> int:
        """Return the longest list of the present level."""
        return LADDERS[name][self.levels[name]]

    def observe(self, spans: Sequence[tuple[int, int, str]], right: Tensor) -> None:
        """Count spans of ``right`` (N,) that are true throughout."""
        for start, stop, kind in spans:
            whole = float(right[start:stop].all())
            seen = self.seen.get(kind, 0)
            kept = min(KEPT, seen / (seen + 1))
            self.rates[kind] = kept * self.rates.get(kind, 0.0) + (1 - kept) * whole
            self.seen[kind] = seen + 1

    def raise_levels(self) -> list[str]:
        """Raise the levels whose kinds all succeed; return their names."""
        raised = []
        for name, kinds in KINDS.items():
            if min(self.seen.get(kind, 0) for kind in kinds) < ENOUGH:
                continue
            rates = [self.rates[kind] for kind in kinds]
            enough = sum(rates) / len(rates) >= self.raise_at and min(rates) >= self.raise_least
            if enough and self.levels[name] + 1 < len(LADDERS[name]):
                self.levels[name] += 1
                raised.append(f"{name} to {self.size(name)}")
                for kind in kinds:
                    self.seen[kind] = 0
                    self.rates.pop(kind)
        return raised

    def reached(self, levels: Mapping[str, int]) -> bool:
        """Return whether all of some levels are reached; False for none."""
        return bool(levels) and all(self.levels[name] >= level for name, level in levels.items())

    def summary(self) -> dict[str, tuple[float, float]]:
        """Return mean and least success over the kinds of each sort that has been seen."""
        found = {}
        for name, kinds in KINDS.items():
            rates = [self.rates[kind] for kind in kinds if kind in self.rates]
            if rates:
                found[name] = (round(sum(rates) / len(rates), 4), round(min(rates), 4))
        return found

    def state(self) -> dict[str, Any]:
        """Return what `load` takes, as JSON values."""
        return {"levels": self.levels, "rates": self.rates, "seen": self.seen}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.levels, self.rates, self.seen = (dict(state[name]) for name in ("levels", "rates", "seen"))
