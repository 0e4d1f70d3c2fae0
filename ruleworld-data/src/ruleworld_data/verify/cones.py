"""Which rules could bear on some sub-questions.

Found without the executor's index, so that the two solvers do not share a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..text import parse_facts, parse_query
from ..world import Ints
from .rulebase import RuleBase


class Cones:
    """Finds the rules that could bear on a few sub-questions among millions."""

    def __init__(self, base: RuleBase) -> None:
        self._code, self._premise = base.terms.get, base["premise"]
        self._changes = base.of_type("attrchange2attr")
        routes = base.of_type("action2env", "action2attr", "action2state", "env2state", "count2state")
        self._routes = routes.index.to_numpy()
        self._threshold_attributes = base.of_type("count2state")["premise"].unique()
        self._reachable = base.of_type("env2state", "action2state", "count2state")["conclusion"].unique()
        self._by_term = {
            name: base.of_type(name).groupby("conclusion").groups
            for name in ("entity2attr", "state2attr", "place_state2attr", "exception")
        }

    def rows(self, scopes: Sequence[tuple[str, str]]) -> Ints:
        """Rows of every rule that could bear on any of the scopes, each given as facts and query.

        All rules about actions, places and thresholds; rules of the kinds named about the attributes asked for and
        those with thresholds; change rules that lead to the attributes asked for, however indirectly; and rules from a
        place together with states, or from a state that is stated or that anything leads to, about any attribute on
        these ways, with all exceptions about those.
        """
        parsed = [(parse_facts(facts), part) for facts, query in scopes for part in parse_query(query).counts]
        named = self._codes(fact.term for facts, _ in parsed for fact in facts if fact.kind == "is")
        attributes = self._codes(query.term for _, query in parsed if query.kind in ("has", "state_of_count"))
        entities = self._rows("entity2attr", np.union1d(attributes, self._threshold_attributes), named)
        sources, targets = self._changes["premise"].to_numpy(), self._changes["conclusion"].to_numpy()
        size = -1
        while len(attributes) != size:
            size = len(attributes)
            attributes = np.union1d(attributes, sources[np.isin(targets, attributes)])
        changes = self._changes.index.to_numpy()[np.isin(targets, attributes)]
        states = self._rows("state2attr", attributes, np.union1d(named, self._reachable))
        both = self._rows("place_state2attr", attributes)
        exceptions = self._rows("exception", attributes)
        return np.concatenate([self._routes, changes, entities, states, both, exceptions])

    def _codes(self, names: Iterable[str]) -> Ints:
        return np.unique(np.fromiter((self._code(name, -1) for name in names), dtype=np.int64))

    def _rows(self, rule_type: str, terms: Ints, premises: Ints | None = None) -> Ints:
        """Rows of the rules of a type that conclude about some terms, from some premises or any."""
        known = self._by_term[rule_type]
        rows = np.concatenate([np.empty(0, np.int64), *(known[t] for t in terms.tolist() if t in known)])
        return rows if premises is None else rows[np.isin(self._premise[rows], premises)]
