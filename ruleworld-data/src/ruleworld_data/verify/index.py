"""Rules by what triggers them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .rulebase import ALL_TYPES, TYPE_CODE, RuleBase, parse_rule_table


class Effect(NamedTuple):
    """What a rule concludes: a term and, for attributes, the count or the signed change.

    ``state`` must hold besides the premise, and the count of a threshold lie beyond ``threshold``. Of an exception the
    kind and the place (-1: any) must hold, and the ``operator`` of its change is given, which may be none.
    """

    rule_id: int
    term: int
    delta: int
    state: int = -1
    threshold: int = -1
    entity: int = -1
    place: int = -1
    operator: int = -1


_EXCEPTION = ("id", "conclusion", "delta", "state", "threshold", "entity", "place", "operator")
"""The fields of an effect as columns of a `RuleBase`."""


class RuleIndex:
    """Parsed rules by what triggers them, found by bisection; about 24 bytes a rule."""

    def __init__(self, base: RuleBase) -> None:
        self.terms = base.terms
        self._size = size = len(base.terms) + 1
        if size**2 * 2 * len(ALL_TYPES) >= 2**63:
            raise ValueError(f"{size} terms are too many to pack into 64-bit keys")
        self._allowed: Collection[int] | None = None
        keys = (base["type"].astype(np.int64) * size + base["premise"]) * 2 + base["mark"]
        keys = keys * size + base["conclusion"]
        order = np.argsort(keys, kind="stable")
        delta = np.where(base["operator"] == 0, -base["amount"], base["amount"])
        # Memory views hand out plain Python integers, several times faster than arrays do.
        self._keys = keys[order].data
        columns = (base["id"], delta, base["state"], base["threshold"])
        self._id, self._delta, self._state, self._threshold = (
            column[order].astype(np.int32).data for column in columns
        )
        self.threshold_attributes = np.unique(base.of_type("count2state")["premise"]).tolist()
        """Attributes whose count has a threshold."""
        self._exceptions: dict[tuple[int, int], list[Effect]] = {}
        own = base.of_type("exception").assign(delta=delta[base["type"] == TYPE_CODE["exception"]])
        for key, *parts in zip(*(own[name].tolist() for name in ("premise", *_EXCEPTION)), strict=True):
            self._exceptions.setdefault((key, parts[1]), []).append(Effect(*parts))
        changes = base.of_type("attrchange2attr")
        self._triggers = changes.groupby("conclusion")["premise"].agg(set).to_dict()
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
        row, effects = bisect_left(self._keys, first), []
        while row < len(self._keys) and (key := self._keys[row]) < end:
            if self._allowed is None or self._id[row] in self._allowed:
                parts = (self._delta[row], self._state[row], self._threshold[row])
                effects.append(Effect(self._id[row], key % self._size, *parts))
            row += 1
        return effects

    def exceptions(self, state: int, attribute: int) -> list[Effect]:
        """Return the exceptions to what a state does to an attribute."""
        known = self._exceptions.get((state, attribute), [])
        return [rule for rule in known if self._allowed is None or rule.rule_id in self._allowed]

    def reaching(self, attribute: int) -> frozenset[int]:
        """Attributes whose change can change the given one, itself included."""
        if attribute not in self._reaching:
            reached, todo = {attribute}, [attribute]
            while todo:
                fresh = self._triggers.get(todo.pop(), set()) - reached
                reached |= fresh
                todo += fresh
            self._reaching[attribute] = frozenset(reached)
        return self._reaching[attribute]
