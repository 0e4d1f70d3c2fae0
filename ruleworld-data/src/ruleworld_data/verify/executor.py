"""The symbolic solver: closed-world forward chaining over parsed rules.

Every rule fires once per triggering event and effects add up. Only rules that can bear on the query are tried
(those about the queried individual, the queried attribute and what can change it); the others conclude about other
things, so leaving them out leaves every answer as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa

from ..spec import OPERATORS, check_columns, check_kind
from ..text import Fact, Query, parse_facts, parse_query
from ..world import load_vocabulary
from .index import Effect, RuleIndex


class Firing(NamedTuple):
    """One rule that fired and the fact it concluded."""

    rule_id: int
    fact: Fact


Firings = tuple[Firing, ...]


class Event(NamedTuple):
    """A change of an attribute by ``delta``, with the firings that led to it (none if it was given)."""

    attribute: str
    delta: int
    path: Firings


class Derivation(NamedTuple):
    """An answer (None if rules and facts give none) and the rules used, in firing order.

    The rule that gives the initial count is read off last. ``counts`` are those that a comparison compares.
    """

    answer: str | None
    firings: Firings
    counts: tuple[str | None, ...] = ()

    @property
    def rule_ids(self) -> tuple[int, ...]:
        """Ids of the rules used, each once, in firing order."""
        return tuple(dict.fromkeys(firing.rule_id for firing in self.firings))


def solve(row: Mapping[str, Any], rules: RuleIndex | pa.Table) -> list[str | None]:
    """Answer one question of the benchmark from a pool of rules.

    Parameters
    ----------
    row : mapping
        A row with ``facts`` and ``queries``, one entry per sub-question.
    rules : RuleIndex or pyarrow.Table
        The pool. Index a table once (`RuleIndex.from_table`) to ask it many questions.

    Returns
    -------
    list of str or None
        One answer per sub-question, None where the pool does not determine one.

    Raises
    ------
    ValueError
        If a text does not parse, or a query has two values.

    Examples
    --------
    >>> solve({"facts": ["Tiny_cat(x)"], "queries": ["Has(x, Strong_horn, ?)"]}, pool)  # doctest: +SKIP
    ['14']
    """
    check_kind("row", row, Mapping, "table('multi_hop_3', spec).to_pylist()[0]")
    check_columns("a question", row, "facts", "queries")
    index = rules if isinstance(rules, RuleIndex) else RuleIndex.from_table(rules)
    scopes = zip(row["facts"], row["queries"], strict=True)
    return [execute(facts, query, index).answer for facts, query in scopes]


def execute(facts: str | Iterable[Fact], query: str | Query, rules: RuleIndex) -> Derivation:
    """Answer one query.

    Parameters
    ----------
    facts : str or iterable of Fact
        Everything that is known, for example ``"Chase(y, x) & Tiny_cat(x)"``.
    query : str or Query
        For example ``"Has(x, Mineral_fur, ?)"``, or several counts to compare.
    rules : RuleIndex
        The rules in force.

    Returns
    -------
    Derivation

    Raises
    ------
    ValueError
        If a text does not parse, the query has two values, or an attribute's change triggers itself.
    """
    query, scope = _read(facts, query, rules)
    if query.parts:
        return _compare(query, scope, [execute(scope.facts, part, rules) for part in query.parts])
    if query.kind == "in":
        return _one(scope.places(), query)
    if query.kind != "has":
        cause = ("count", query.term) if query.kind == "state_of_count" else query.term
        return _one([(state, path) for why, state, path in scope.states() if why == cause], query)
    start = _one(scope.counts(query.term), query)
    if start.answer is None:
        return start
    events = [event for event in scope.events(rules.reaching(query.term)) if event.attribute == query.term]
    if query.changed and not events:
        return Derivation(None, ())
    total = int(start.answer) + sum(event.delta for event in events)
    return Derivation(str(total), (*(firing for event in events for firing in event.path), *start.firings))


def fired(
    facts: str | Iterable[Fact], query: str | Query, rules: RuleIndex, attributes: Collection[str]
) -> dict[int, Fact]:
    """Return what every rule that fires concludes about the queried individual, of attributes about some alone.

    Rules on the way to an answer that there is not are found so.
    """
    query, scope = _read(facts, query, rules)
    paths = [path for _, path in scope.places()] + [path for *_, path in scope.states()]
    paths += [path for name in attributes for _, path in scope.counts(name)]
    paths += [event.path for event in scope.events(attributes)]
    return {firing.rule_id: firing.fact for path in paths for firing in path}


def _read(facts: str | Iterable[Fact], query: str | Query, rules: RuleIndex) -> tuple[Query, _Scope]:
    query = parse_query(query) if isinstance(query, str) else query
    return query, _Scope(parse_facts(facts) if isinstance(facts, str) else tuple(facts), query.who, rules)


def _compare(query: Query, scope: _Scope, proofs: list[Derivation]) -> Derivation:
    """Apply an operation to counts; there is no answer while one of them is open, or where two creatures have most."""
    counts = tuple(proof.answer for proof in proofs)
    path = tuple(firing for proof in proofs for firing in proof.firings)
    numbers = [int(count) for count in counts if count is not None]
    if len(numbers) < len(counts):
        return Derivation(None, path, counts)
    high = max(numbers)
    totals = {"sum": sum(numbers), "difference": high - min(numbers), "highest": high}
    if query.kind != "most":
        return Derivation(str(totals[query.kind]), path, counts)
    known = load_vocabulary().entities
    kinds = {fact.who: fact.term for fact in scope.facts if fact.kind == "is" and fact.term in known}
    most = {kinds.get(part.who) for part, number in zip(query.parts, numbers, strict=True) if number == high}
    return Derivation(most.pop() if len(most) == 1 else None, path, counts)


def _one(derived: Iterable[tuple[str | int, Firings]], query: Query) -> Derivation:
    """Return the single value derived, or none."""
    values = dict(derived)
    if len(values) > 1:
        spelt = ", ".join(map(str, values))
        raise ValueError(f"the query {query!s} has {len(values)} values: {spelt}; expected one")
    value, path = values.popitem() if values else (None, ())
    return Derivation(None if value is None else str(value), path)


class _Scope:
    """What holds for one individual, given facts and rules."""

    def __init__(self, facts: tuple[Fact, ...], who: str, rules: RuleIndex) -> None:
        self.facts, self.who, self.rules = tuple(dict.fromkeys(facts)), who, rules

    def _roles(self) -> Iterable[tuple[str, int]]:
        """Actions the individual takes part in, as actor (0) or target (1)."""
        for fact in self.facts:
            if fact.kind == "act" and self.who in (fact.who, fact.other):
                yield fact.term, int(fact.other == self.who)

    def places(self) -> list[tuple[str, Firings]]:
        """Environments the individual is in."""
        stated = [fact.term for fact in self.facts if fact.kind == "in" and fact.who == self.who]
        places: list[tuple[str, Firings]] = [(name, ()) for name in stated]
        for action, role in self._roles():
            for effect in self.rules.fire("action2env", action, role):
                places.append((effect.term, (Firing(effect.id, Fact("in", self.who, effect.term)),)))
        return places

    def states(self) -> Iterator[tuple[str | tuple[str, str], str, Firings]]:
        """States that the individual is brought into, each after its cause.

        The cause is an action, ``"in"`` for a place, or ``("count", attribute)`` for an initial count that is above or
        below a threshold.
        """
        for action, role in self._roles():
            for effect in self.rules.fire("action2state", action, role):
                yield action, *self._caused(effect, ())
        for place, path in self.places():
            for effect in self.rules.fire("env2state", place):
                yield "in", *self._caused(effect, path)
        for attribute in self.rules.threshold_attributes:
            for (count, path), plus in product(self.counts(attribute), (0, 1)):
                for effect in self.rules.fire("count2state", attribute, plus):
                    if count > effect.threshold if plus else count < effect.threshold:
                        yield ("count", attribute), *self._caused(effect, path)

    def _caused(self, effect: Effect, path: Firings) -> tuple[str, Firings]:
        return effect.term, (*path, Firing(effect.id, Fact("is", self.who, effect.term)))

    def counts(self, attribute: str) -> list[tuple[int, Firings]]:
        """Initial counts of an attribute: given, or by the individual's kind."""
        counts: list[tuple[int, Firings]] = []
        for fact in self.facts:
            if fact.who != self.who:
                continue
            if fact.kind == "has" and fact.term == attribute:
                counts.append((fact.number or 0, ()))
            elif fact.kind == "is":
                for effect in self.rules.fire("entity2attr", fact.term, attribute=attribute):
                    has = Fact("has", self.who, attribute, number=effect.delta)
                    counts.append((effect.delta, (Firing(effect.id, has),)))
        return counts

    def events(self, attributes: Collection[str]) -> list[Event]:
        """All changes of some attributes, causes before effects."""
        events = [event for event in self._first_events(attributes) if event.attribute in attributes]
        for event in events:  # grows while it is walked
            for effect in self.rules.fire("attrchange2attr", event.attribute, int(event.delta > 0)):
                if event.delta and effect.term in attributes:
                    if any(firing.rule_id == effect.id for firing in event.path):
                        raise ValueError(
                            f"rule {effect.id} triggers itself; attribute changes must not be circular"
                        )
                    events.append(self._changed(effect, effect.delta * abs(event.delta), event.path))
        return events

    def _first_events(self, attributes: Collection[str]) -> Iterable[Event]:
        for fact in self.facts:
            if fact.kind == "change" and fact.who == self.who and fact.number:
                sign = 1 if fact.operator == OPERATORS[1] else -1
                yield Event(fact.term, sign * fact.number, ())
        for action, role in self._roles():
            for effect in self.rules.fire("action2attr", action, role):
                yield self._changed(effect, effect.delta, ())
        held: dict[str, Firings] = {
            fact.term: () for fact in self.facts if fact.kind == "is" and fact.who == self.who
        }
        for _, state, path in self.states():
            held.setdefault(state, path)
        for place, path in self.places():
            for name in attributes:
                for effect in self.rules.fire("place_state2attr", place, attribute=name):
                    if effect.state in held:
                        both = dict.fromkeys([*path, *held[effect.state]])
                        yield self._changed(effect, effect.delta, tuple(both))
        places = dict(self.places())
        for state, path in held.items():
            for name in attributes:
                rules = self.rules.fire("state2attr", state, attribute=name)
                if exceptions := self.rules.fire("exception", state, attribute=name):
                    yield from self._most_special((*rules, *exceptions), path, held, places)
                else:
                    yield from (self._changed(effect, effect.delta, path) for effect in rules)

    def _most_special(
        self,
        rules: Iterable[Effect],
        path: Firings,
        held: Mapping[str, Firings],
        places: Mapping[str, Firings],
    ) -> Iterator[Event]:
        """Change an attribute by the rules with most conditions that hold, which set those with fewer aside."""
        found: dict[int, list[Effect]] = {}
        for effect in rules:
            guards = [(effect.entity, held), (effect.place, places)]
            named = [(name, known) for name, known in guards if name is not None]
            if all(name in known for name, known in named):
                found.setdefault(len(named), []).append(effect)
                path = tuple(
                    dict.fromkeys([*(firing for name, known in named for firing in known[name]), *path])
                )
        for level in sorted(found):
            events = [self._changed(effect, effect.delta, path) for effect in found[level]]
            path = tuple(dict.fromkeys(firing for event in events for firing in event.path))
        yield from events if found else ()

    def _changed(self, effect: Effect, delta: int, path: Firings) -> Event:
        operator = OPERATORS[delta > 0 if delta else effect.operator]
        fact = Fact("change", self.who, effect.term, None, operator, abs(delta))
        return Event(effect.term, delta, (*path, Firing(effect.id, fact)))
