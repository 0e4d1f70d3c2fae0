"""The curriculum's levels, one for each sort of document: how many pairs or rules a list may have.

A level rises when the lookups in lists of the present level come out right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ruleworld_data.spec import RULE_TYPES, SUBTASKS
from torch import Tensor

TERSE = ((1, 4), (1, 8), (1, 16), (2, 8), (4, 8), (4, 16), (4, 32))
"""Words of a key, and pairs in a list. Lookup by one word emerges first; two pairs would invite guessing."""
LADDERS: dict[str, tuple[int, ...]] = {
    "terse": tuple(pairs for _, pairs in TERSE),
    "recital": (4, 6, 8, 11, 16, 24, 32, 48, 64),
    "questions": (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96),
    "plain": (0, 1, 2, 4, 8, 12, 16, 24, 32),
}
"""Pairs or rules in a list by level; for questions, rules beside the gold ones."""
KINDS: dict[str, tuple[str, ...]] = {
    "terse": ("terse",),
    "recital": RULE_TYPES,
    "questions": SUBTASKS,
    "plain": ("plain",),
}
"""What success is counted for, by sort of document."""
MEMORY = 0.98
"""Weight of the past in a success rate, per observation."""
MIN_SEEN = 40
"""Observations of every kind before a level can rise."""


class Curriculum:
    """Success rates by kind, and the level of each sort of document.

    A rate is a running mean over all documents, half of which are at the level and half below.
    """

    def __init__(self, raise_at: float, raise_least: float) -> None:
        self.raise_at, self.raise_least = raise_at, raise_least
        self.levels = dict.fromkeys(LADDERS, 0)
        self.rates: dict[str, float] = {}
        self.seen: dict[str, int] = {}

    def sizes(self) -> dict[str, int]:
        """Return the longest list of each present level."""
        return {name: LADDERS[name][level] for name, level in self.levels.items()}

    def observe(self, spans: Sequence[tuple[int, int, str]], right: Tensor) -> None:
        """Count spans of ``right`` (N,) that are true throughout."""
        for start, stop, kind in spans:
            whole = float(right[start:stop].all())
            seen = self.seen.get(kind, 0)
            past = min(MEMORY, seen / (seen + 1))
            self.rates[kind] = past * self.rates.get(kind, 0.0) + (1 - past) * whole
            self.seen[kind] = seen + 1

    def raise_levels(self) -> list[str]:
        """Raise the levels whose kinds all succeed; return their names."""
        raised = []
        for name, kinds in KINDS.items():
            if min(self.seen.get(kind, 0) for kind in kinds) < MIN_SEEN:
                continue
            rates = [self.rates[kind] for kind in kinds]
            enough = sum(rates) / len(rates) >= self.raise_at and min(rates) >= self.raise_least
            if enough and self.levels[name] + 1 < len(LADDERS[name]):
                self.levels[name] += 1
                raised.append(f"{name} to {self.sizes()[name]}")
                for kind in kinds:
                    self.seen[kind] = 0
                    self.rates.pop(kind)
        return raised

    def begin(self, least: Mapping[str, int]) -> None:
        """Raise levels to what a phase begins with."""
        for name, level in least.items():
            self.levels[name] = max(level, self.levels[name])

    def reached(self, levels: Mapping[str, int]) -> bool:
        """Return whether all of some levels are reached; False for none."""
        return bool(levels) and all(self.levels[name] >= level for name, level in levels.items())

    def success(self) -> dict[str, tuple[float, float]]:
        """Return mean and least success over the kinds of each sort that has been seen."""
        found = {}
        for name, kinds in KINDS.items():
            rates = [self.rates[kind] for kind in kinds if kind in self.rates]
            if rates:
                found[name] = (round(sum(rates) / len(rates), 4), round(min(rates), 4))
        return found
