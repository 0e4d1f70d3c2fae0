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
    kind and the place (-1: any) must hold. The ``operator`` of a change says its sign where it comes to nothing.
    """

    id: int
    term: int
    delta: int
    state: int
    threshold: int
    entity: int
    place: int
    operator: int


class RuleIndex:
    """Parsed rules by what triggers them, found by bisection; about 36 bytes a rule."""

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
        columns = {"delta": delta} | {name: base[name] for name in ("id", *Effect._fields[3:])}
        views = {name: column[order].astype(np.int32).data for name, column in columns.items()}
        self._id, *self._more = (views[name] for name in Effect._fields if name in views)
        self.threshold_attributes = np.unique(base.of_type("count2state")["premise"]).tolist()
        """Attributes whose count has a threshold."""
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
                effects.append(Effect(self._id[row], key % self._size, *(view[row] for view in self._more)))
            row += 1
        return effects

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
