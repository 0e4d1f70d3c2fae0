"""Rules by what triggers them."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from .rulebase import TYPE_CODE, RuleBase, parse_rule_table


class Effect(NamedTuple):
    """What a rule concludes: a term and, for attributes, the count or the signed change.

    ``state`` must hold besides the premise, and the count of a threshold lie beyond ``threshold``. Of an exception the
    kind and the place (None: any) must hold. The ``operator`` of a change says its sign where it comes to nothing.
    """

    id: int
    term: str
    delta: int
    state: str | None
    threshold: int
    entity: str | None
    place: str | None
    operator: int


class RuleIndex:
    """Parsed rules by what triggers them, found by bisection; about 36 bytes a rule."""

    def __init__(self, base: RuleBase) -> None:
        self._codes = dict(base.terms)
        self._names: list[Any] = [*base.terms.names, None]  # the last one is that of -1
        self._size = size = len(self._names)
        self._allowed: Collection[int] | None = None
        keys = (base["type"].astype(np.int64) * size + base["premise"]) * 2 + base["mark"]
        keys = keys * size + base["conclusion"]
        order = np.argsort(keys, kind="stable")
        delta = np.where(base["operator"] == 0, -base["amount"], base["amount"])
        # Memory views hand out plain Python integers, several times faster than arrays do.
        self._keys = keys[order].data
        columns = (base["id"], delta, *(base[name] for name in Effect._fields[3:]))
        self._views = [column[order].astype(np.int32).data for column in columns]
        counted = np.unique(base.of_type("count2state")["premise"]).tolist()
        self.threshold_attributes = [self._names[code] for code in counted]
        """Attributes whose count has a threshold."""
        changes = base.of_type("attrchange2attr")[["premise", "conclusion"]].to_numpy()
        self._triggers: dict[str, list[str]] = {}
        for trigger, target in np.unique(changes, axis=0).tolist():
            self._triggers.setdefault(self._names[target], []).append(self._names[trigger])

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        """Parse a rule table (or any pool of its rows) and index it."""
        return cls(parse_rule_table(table))

    def only(self, ids: Collection[int]) -> Self:
        """Return a view in which only some rules are in force; nothing is copied."""
        view = type(self).__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._allowed = ids if isinstance(ids, set | frozenset) else frozenset(ids)
        return view

    def fire(
        self, rule_type: str, premise: str, mark: int = 0, attribute: str | None = None
    ) -> Sequence[Effect]:
        """Return the rules of a type that a premise triggers: all of them, or those about one attribute."""
        named = (premise,) if attribute is None else (premise, attribute)
        code, *about = (self._codes.get(name, -1) for name in named)
        if min(code, *about, 0) < 0:  # terms that no rule knows
            return ()
        names, first = self._names, ((TYPE_CODE[rule_type] * self._size + code) * 2 + mark) * self._size
        end = first + self._size
        if about:
            first, end = first + about[0], first + about[0] + 1
        row, effects = bisect_left(self._keys, first), []
        while row < len(self._keys) and (key := self._keys[row]) < end:
            rule, delta, state, threshold, kind, place, operator = (view[row] for view in self._views)
            if self._allowed is None or rule in self._allowed:
                guards = names[state], threshold, names[kind], names[place]
                effects.append(Effect(rule, names[key % self._size], delta, *guards, operator))
            row += 1
        return effects

    def reaching(self, attribute: str) -> list[str]:
        """Attributes whose change can change the given one, itself included."""
        reached = [attribute]
        for term in reached:  # grows while it is walked
            reached += [trigger for trigger in self._triggers.get(term, ()) if trigger not in reached]
        return reached
