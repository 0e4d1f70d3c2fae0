"""Which rules could bear on some sub-questions, and pools of rules to answer them from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..text.parser import Fact, Query
from ..text.rulebase import TYPE_CODE, Ints, RuleBase
from .unit import Unit

POOL_SIZE = 10_000
_FILLERS = 8
"""Sets of rules that fill up pools. Few, because clingo keeps every symbol it ever saw."""


class Parsed(NamedTuple):
    """A sub-question whose facts and query could be read."""

    unit: Unit
    facts: tuple[Fact, ...]
    query: Query


class Cones:
    """Finds the cone of a few sub-questions in millions of rules.

    Found with numpy, not with the executor's index, so that the two solvers do not share a mistake.
    """

    def __init__(self, base: RuleBase) -> None:
        self.base = base
        self._changes = base.take(base.rows_of("attrchange2attr"))
        self._change_rows = base.rows_of("attrchange2attr")
        self._entities = _ByConclusion(base, "entity2attr")
        self._states = _ByConclusion(base, "state2attr")
        narrow = [TYPE_CODE[name] for name in ("action2env", "action2attr", "action2state", "env2state")]
        self._routes = np.flatnonzero(np.isin(base.type, narrow))
        moody = np.isin(base.type, [TYPE_CODE["env2state"], TYPE_CODE["action2state"]])
        self._reachable = np.unique(base.conclusion[moody])

    def rows(self, known: Sequence[Parsed]) -> Ints:
        """Rows of every rule that could bear on any of the sub-questions.

        All rules about actions and places; entity rules about the attributes asked for, from the kinds they are asked
        of; change rules that lead to these attributes, however indirectly; and rules from a state that is stated or
        that any action or place leads to, about any attribute on these ways.
        """
        code = self.base.terms.get
        counting = [item for item in known if item.query.kind == "has"]
        attributes: Ints = np.unique(
            np.array([code(item.query.term, -1) for item in counting], dtype=np.int64)
        )
        kinds = [
            (code(fact.term, -1), code(item.query.term, -1))
            for item in counting
            for fact in item.facts
            if fact.kind == "is" and fact.who == item.query.who
        ]
        entities = self._entities.about(attributes)
        entities = entities[
            np.isin(
                self.base.premise[entities] + (self.base.conclusion[entities].astype(np.int64) << 32),
                _packed(kinds),
            )
        ]
        while True:
            sources = self._changes.premise[np.isin(self._changes.conclusion, attributes)]
            grown = np.union1d(attributes, sources)
            if len(grown) == len(attributes):
                break
            attributes = grown
        stated = [code(fact.term, -1) for item in known for fact in item.facts if fact.kind == "is"]
        states = self._states.about(attributes)
        held = np.union1d(np.array(stated, dtype=np.int64), self._reachable)
        states = states[np.isin(self.base.premise[states], held)]
        changes = self._change_rows[np.isin(self._changes.conclusion, attributes)]
        return np.concatenate([self._routes, changes, entities, states])


class Pools:
    """Draws pools of rules that contain given gold rules."""

    def __init__(self, base: RuleBase) -> None:
        self._ids = base.id
        self._fillers: dict[int, list[int]] = {}

    def draw(self, gold: Iterable[int], number: int) -> frozenset[int]:
        """Return ``POOL_SIZE`` rule ids, the gold ones among them (all ids, if there are fewer)."""
        if len(self._ids) <= POOL_SIZE:
            return frozenset(self._ids.tolist())
        seed = number % _FILLERS
        if seed not in self._fillers:
            rows = np.random.default_rng(seed).choice(len(self._ids), POOL_SIZE, replace=False)
            self._fillers[seed] = self._ids[rows].tolist()
        pool = set(gold)
        for rule_id in self._fillers[seed]:
            if len(pool) >= POOL_SIZE:
                break
            pool.add(rule_id)
        return frozenset(pool)


class _ByConclusion:
    """Rows of one rule type, sorted by the attribute they conclude about."""

    def __init__(self, base: RuleBase, rule_type: str) -> None:
        rows = base.rows_of(rule_type)
        self._rows = rows[np.argsort(base.conclusion[rows], kind="stable")].astype(np.int32)
        self._attributes = base.conclusion[self._rows]

    def about(self, attributes: Ints) -> Ints:
        """Return the rows that conclude about some attributes."""
        first, last = (np.searchsorted(self._attributes, attributes, side) for side in ("left", "right"))
        slices = [self._rows[a:b] for a, b in zip(first, last, strict=True)]
        return np.concatenate([*slices, np.empty(0, dtype=np.int32)])


def _packed(pairs: Sequence[tuple[int, int]]) -> Ints:
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0] + (columns[:, 1] << 32)
