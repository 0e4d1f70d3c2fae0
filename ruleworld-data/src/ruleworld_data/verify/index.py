"""Rules by what triggers them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..spec import RULE_TYPES
from .reader import parse_rule_table
from .rulebase import TYPE_CODE, RuleBase


class Effect(NamedTuple):
    """What a rule concludes: a term and, for attributes, the count or the signed change.

    ``state`` must hold besides the premise, and the count of a threshold lie beyond ``threshold``.
    """

    rule_id: int
    term: int
    delta: int
    state: int = -1
    threshold: int = -1


class RuleIndex:
    """Parsed rules by what triggers them, found by bisection; about 17 bytes a rule."""

    def __init__(self, base: RuleBase) -> None:
        self.terms = base.terms
        self._size = len(base.terms) + 1
        self._allowed: Collection[int] | None = None
        order = np.argsort(base.keys, kind="stable")
        # Memory views hand out plain Python integers, several times faster than arrays do.
        self._keys = base.keys[order].data
        self._ids = base.id[order].astype(np.int32).data
        self._delta = base.delta[order].astype(np.int32).data
        # Types whose premise has more to it come last, so only their part of these is kept.
        self._more = bisect_left(self._keys, len(RULE_TYPES) * 2 * self._size**2)
        parts = (part[order[self._more :]].tolist() for part in (base.state, base.threshold))
        self._premises: list[tuple[int, int]] = list(zip(*parts, strict=True))
        self.threshold_attributes = np.unique(base.premise[base.rows_of("count2state")]).tolist()
        """Attributes whose count has a threshold."""
        changes = base.of_type("attrchange2attr")
        self._triggers: dict[int, set[int]] = {}
        for trigger, attribute in zip(changes.premise.tolist(), changes.conclusion.tolist(), strict=True):
            self._triggers.setdefault(attribute, set()).add(trigger)
        self._reaching: dict[int, frozenset[int]] = {}

    @classmethod
    def from_table(cls, table: pa.Table) -> RuleIndex:
        """Parse a rule table (or any pool of its rows) and index it."""
        return cls(parse_rule_table(table))

    def only(self, ids: Collection[int]) -> RuleIndex:
        """Return a view in which only some rules are in force; nothing is copied."""
        view = RuleIndex.__new__(RuleIndex)
        view.__dict__.update(self.__dict__)
        view._allowed = ids if isinstance(ids, set | frozenset) else frozenset(ids)
        return view

    def fire(
        self, rule_type: str, premise: int, mark: int = 0, attribute: int | None = None
    ) -> Sequence[Effect]:
        """Return the rules of a type that a premise triggers: all of them, or those about one attribute."""
        if premise < 0 or (attribute is not None and attribute < 0):  # terms that no rule knows
            return ()
        first = ((TYPE_CODE[rule_type] * self._size + premise) * 2 + mark) * self._size
        end = first + self._size
        if attribute is not None:
            first, end = first + attribute, first + attribute + 1
        row, found = bisect_left(self._keys, first), []
        while row < len(self._keys) and (key := self._keys[row]) < end:
            if self._allowed is None or self._ids[row] in self._allowed:
                effect = Effect(self._ids[row], key % self._size, self._delta[row])
                if row >= self._more:
                    state, cut = self._premises[row - self._more]
                    effect = effect._replace(state=state, threshold=cut)
                found.append(effect)
            row += 1
        return found

    def reaching(self, attribute: int) -> frozenset[int]:
        """Attributes whose change can change the given one, itself included."""
        known = self._reaching.get(attribute)
        if known is None:
            found, todo = {attribute}, [attribute]
            while todo:
                fresh = self._triggers.get(todo.pop(), set()) - found
                found |= fresh
                todo += fresh
            known = self._reaching[attribute] = frozenset(found)
        return known
