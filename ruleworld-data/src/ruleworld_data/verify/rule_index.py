"""Rules by what triggers them, for solvers that look up one premise at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..text.reader import parse_rule_table
from ..text.rulebase import RuleBase


class Effect(NamedTuple):
    """What a rule concludes: a term and, for attributes, operator (0 minus, 1 plus, -1 none) and amount."""

    rule_id: int
    term: int
    operator: int
    amount: int

    @property
    def delta(self) -> int:
        """The amount with its sign."""
        return self.amount if self.operator else -self.amount


class RuleIndex:
    """Rules by what triggers them; about 16 bytes a rule.

    Parameters
    ----------
    base : RuleBase
        Parsed rules, see `parse_rule_table`.
    """

    def __init__(self, base: RuleBase) -> None:
        self.terms = base.terms
        self._allowed: Collection[int] | None = None
        self._wide = {name: _Sorted(base, name) for name in ("entity2attr", "state2attr")}
        self._narrow: dict[str, dict[tuple[int, int], list[Effect]]] = {}
        for name in ("attrchange2attr", "action2env", "action2attr", "action2state", "env2state"):
            part = base.take(base.rows_of(name))
            keys = zip(part.premise.tolist(), part.mark.tolist(), strict=True)
            columns = (part.id, part.conclusion, part.operator, part.amount)
            table = self._narrow[name] = {}
            for key, row in zip(keys, zip(*(c.tolist() for c in columns), strict=True), strict=True):
                table.setdefault(key, []).append(Effect(*row))
        self._triggers: dict[int, set[int]] = {}
        for (trigger, _), effects in self._narrow["attrchange2attr"].items():
            for effect in effects:
                self._triggers.setdefault(effect.term, set()).add(trigger)
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

    def fire(self, rule_type: str, premise: int, mark: int = 0) -> Sequence[Effect]:
        """Return the rules of a type that a premise triggers."""
        return self._in_force(self._narrow[rule_type].get((premise, mark), ()))

    def lookup(self, rule_type: str, premise: int, attribute: int) -> Sequence[Effect]:
        """Return the rules from an entity or a state to one attribute."""
        return self._in_force(self._wide[rule_type].find(premise, attribute))

    def _in_force(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        if self._allowed is None or not effects:
            return effects
        return [effect for effect in effects if effect.rule_id in self._allowed]

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


class _Sorted:
    """The rules of one large type, sorted by (premise, attribute) and found by bisection."""

    def __init__(self, base: RuleBase, rule_type: str) -> None:
        part = base.take(base.rows_of(rule_type))
        keys = part.premise.astype(np.int64) << 32 | part.conclusion
        order = np.argsort(keys, kind="stable")
        # Memory views hand out plain Python integers, several times faster than arrays do.
        self._keys = keys[order].data
        self._ids = part.id[order].astype(np.int32).data
        self._operator = part.operator[order].astype(np.int8).data
        self._amount = part.amount[order].astype(np.int32).data

    def find(self, premise: int, attribute: int) -> list[Effect]:
        key = premise << 32 | attribute
        first = bisect_left(self._keys, key)
        if first == len(self._keys) or self._keys[first] != key:
            return []
        return [
            Effect(self._ids[row], attribute, self._operator[row], self._amount[row])
            for row in range(first, bisect_right(self._keys, key, first))
        ]
