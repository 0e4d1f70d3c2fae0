"""Which rules could bear on some sub-questions, and pools of rules to answer them from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..world import Ints
from .rulebase import RuleBase
from .subquestions import Parsed

POOL_SIZE = 10_000
_FILLERS = 8
"""Sets of rules that fill up pools. Few, because clingo keeps every symbol it ever saw."""


class Cones:
    """Finds the cone of a few sub-questions in millions of rules.

    Found with numpy, not with the executor's index, so that the two solvers do not share a mistake.
    """

    def __init__(self, base: RuleBase) -> None:
        self.base = base
        self._changes = base.rows_of("attrchange2attr")
        self._entities = _ByConclusion(base, "entity2attr")
        self._states = _ByConclusion(base, "state2attr")
        self._routes = base.rows_of("action2env", "action2attr", "action2state", "env2state")
        self._reachable = np.unique(base.conclusion[base.rows_of("env2state", "action2state")])

    def rows(self, known: Sequence[Parsed]) -> Ints:
        """Rows of every rule that could bear on any of the sub-questions.

        All rules about actions and places; entity rules about the attributes asked for, from the kinds they are asked
        of; change rules that lead to these attributes, however indirectly; and rules from a state that is stated or
        that any action or place leads to, about any attribute on these ways.
        """
        base, code = self.base, self.base.terms.get
        counted = [(item, code(item.query.term, -1)) for item in known if item.query.kind == "has"]
        kinds = {
            (code(fact.term, -1), attribute)
            for item, attribute in counted
            for fact in item.facts
            if fact.kind == "is" and fact.who == item.query.who
        }
        attributes: Ints = np.unique(np.array([attribute for _, attribute in counted], dtype=np.int64))
        entities = self._entities.about(attributes)
        pairs = np.array(sorted(kinds), dtype=np.int64).reshape(-1, 2)
        wanted = pairs[:, 0] + (pairs[:, 1] << 32)
        entities = entities[
            np.isin(base.premise[entities] + (base.conclusion[entities].astype(np.int64) << 32), wanted)
        ]
        sources, targets = base.premise[self._changes], base.conclusion[self._changes]
        size = -1
        while len(attributes) != size:
            size = len(attributes)
            attributes = np.union1d(attributes, sources[np.isin(targets, attributes)])
        stated = [code(fact.term, -1) for item in known for fact in item.facts if fact.kind == "is"]
        states = self._states.about(attributes)
        held = np.union1d(np.array(stated, dtype=np.int64), self._reachable)
        states = states[np.isin(base.premise[states], held)]
        return np.concatenate([self._routes, self._changes[np.isin(targets, attributes)], entities, states])


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
        # A dict keeps the order, so the gold rules come first.
        return frozenset(list(dict.fromkeys([*gold, *self._fillers[seed]]))[:POOL_SIZE])
