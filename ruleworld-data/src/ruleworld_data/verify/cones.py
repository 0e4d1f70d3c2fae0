"""Which rules could bear on some sub-questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..text import parse_facts, parse_query
from ..world import Ints
from .rulebase import RuleBase


class Cones:
    """Finds the cone of a few sub-questions in millions of rules.

    Found with numpy, not with the executor's index, so that the two solvers do not share a mistake.
    """

    def __init__(self, base: RuleBase) -> None:
        self.base = base
        self._changes = base.rows_of("attrchange2attr")
        types = ("entity2attr", "state2attr", "place_state2attr")
        self._entities, self._states, self._both = (self._by_term(name) for name in types)
        self._routes = base.rows_of("action2env", "action2attr", "action2state", "env2state", "count2state")
        self._threshold_attributes = np.unique(base.premise[base.rows_of("count2state")])
        self._reachable = np.unique(base.conclusion[base.rows_of("env2state", "action2state", "count2state")])

    def rows(self, scopes: Sequence[tuple[str, str]]) -> Ints:
        """Rows of every rule that could bear on any of the scopes, each given as facts and query.

        All rules about actions, places and thresholds; entity rules about the attributes asked for, from the kinds
        they are asked of, and about those with thresholds from these kinds; change rules that lead to the attributes
        asked for, however indirectly; and rules from a place together with states, or from a state that is stated or
        that anything leads to, about any attribute on these ways.
        """
        base, code, counts = self.base, self.base.terms.get, ("has", "state_of_count")
        parsed = [(parse_facts(facts), parse_query(query)) for facts, query in scopes]
        attributes = _codes(code(query.term, -1) for _, query in parsed if query.kind in counts)
        stated = _codes(code(fact.term, -1) for facts, _ in parsed for fact in facts if fact.kind == "is")
        wanted = _codes(
            code(fact.term, -1) + (attribute << 32)
            for facts, query in parsed
            for fact in facts
            if query.kind in counts and fact.kind == "is" and fact.who == query.who
            for attribute in (code(query.term, -1), *self._threshold_attributes.tolist())
        )
        entities = _of_terms(self._entities, np.union1d(attributes, self._threshold_attributes))
        key = base.premise[entities] + (base.conclusion[entities].astype(np.int64) << 32)
        entities = entities[np.isin(key, wanted)]
        sources, targets = base.premise[self._changes], base.conclusion[self._changes]
        size = -1
        while len(attributes) != size:
            size = len(attributes)
            attributes = np.union1d(attributes, sources[np.isin(targets, attributes)])
        states = _of_terms(self._states, attributes)
        states = states[np.isin(base.premise[states], np.union1d(stated, self._reachable))]
        both, changes = _of_terms(self._both, attributes), self._changes[np.isin(targets, attributes)]
        return np.concatenate([self._routes, changes, entities, states, both])

    def _by_term(self, rule_type: str) -> list[Ints]:
        """For each term the rows of a rule type that conclude about it, and at the end no row, for unknown terms."""
        rows = self.base.rows_of(rule_type).astype(np.int32)
        terms = self.base.conclusion[rows]
        ends = np.cumsum(np.bincount(terms, minlength=len(self.base.terms)))
        return np.split(rows[np.argsort(terms, kind="stable")], ends)


def _codes(codes: Iterable[int]) -> Ints:
    return np.unique(np.fromiter(codes, dtype=np.int64))


def _of_terms(rows: list[Ints], terms: Ints) -> Ints:
    return np.concatenate([*(rows[term] for term in terms.tolist()), np.empty(0, dtype=np.int32)])
