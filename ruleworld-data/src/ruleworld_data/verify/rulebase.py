"""All rules of a table as a few integer arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ..spec import EXTRA_TYPES, OPERATORS, ROLES, RULE_TYPES
from ..text import ParsedRule
from ..text.parser import RULE_SHAPES
from ..world import Ints

ALL_TYPES = (*RULE_TYPES, *EXTRA_TYPES)
TYPE_CODE = {name: code for code, name in enumerate(ALL_TYPES)}
NAMED_CODES = {"type": ALL_TYPES, "role": ROLES, "operator": OPERATORS, "trigger_operator": OPERATORS}
NUMBERS = ("amount", "threshold")
SIGNED = ("attrchange2attr", "count2state")
"""Types whose premise has an operator."""
TYPED_COLUMNS = tuple(part.name for part in fields(ParsedRule))


class Terms(dict[str, int]):
    """Numbers for names, handed out on first use; `names` lists them in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = list(names)
        super().__init__({name: code for code, name in enumerate(self.names)})

    def __missing__(self, name: str) -> int:
        self[name] = code = len(self.names)
        self.names.append(name)
        return code

    def encode(self, column: pa.Array) -> Ints:
        """Number every string of a column; null gives -1."""
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        table = np.array([*map(self.__getitem__, coded.dictionary.to_pylist()), -1], dtype=np.int32)
        return table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]


@dataclass(frozen=True)
class RuleBase:
    """Rules as arrays, one entry per rule.

    Attributes
    ----------
    terms : Terms
        Names behind the codes.
    worlds : tuple of str
        The worlds that the table names; one, if it is sound.
    id : int32 array
        Rule ids.
    type : int8 array
        Index in `ALL_TYPES`.
    premise, conclusion : int32 array
        Their terms.
    mark : int8 array
        What else the premise fixes: the trigger's operator (of a threshold 0 fewer, 1 more), or the role (0 actor,
        1 target) that the conclusion is about.
    operator : int8 array
        0 minus, 1 plus, -1 if the conclusion is no change.
    amount : int32 array
        Count or units; -1 if the conclusion has none.
    state : int32 array
        The state of a premise of a place and a state; -1 of any other.
    threshold : int32 array
        Number of a threshold, -1 where the premise is none.
    in_paper : bool array
        Whether the table says that the rule is in the paper's subset.
    fol_key, nl_key : int64 array
        Equal exactly where two texts are equal.
    """

    terms: Terms
    worlds: tuple[str, ...]
    id: Ints
    type: Ints
    premise: Ints
    mark: Ints
    conclusion: Ints
    operator: Ints
    amount: Ints
    state: Ints
    threshold: Ints
    in_paper: Ints
    fol_key: Ints
    nl_key: Ints

    def __len__(self) -> int:
        return len(self.id)

    @property
    def world_id(self) -> str:
        """Name of the world."""
        return next(iter(self.worlds), "")

    def take(self, rows: Ints) -> RuleBase:
        """Return the base with only some rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ARRAYS})

    def of_type(self, *rule_types: str) -> RuleBase:
        """Return the base with only the rules of some types."""
        return self.take(self.rows_of(*rule_types))

    def rows_of(self, *rule_types: str) -> Ints:
        """Row numbers of some rule types."""
        return np.flatnonzero(np.isin(self.type, [TYPE_CODE[name] for name in rule_types]))

    def find(self, ids: Iterable[int]) -> Ints:
        """Return the row of each rule id, -1 for an id that no rule has."""
        order, known = self._sorted
        wanted = np.fromiter(ids, dtype=np.int64)
        spot = np.searchsorted(known[:-1], wanted)
        return np.where(known[spot] == wanted, order[spot], -1)

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.id, kind="stable")
        return np.append(order, -1), np.append(self.id[order].astype(np.int64), np.iinfo(np.int64).min)

    @cached_property
    def keys(self) -> Ints:
        """One integer per rule, in the order of type, premise, mark and conclusion."""
        size = len(self.terms) + 1
        if size**2 * 2 * len(ALL_TYPES) >= 2**63:
            raise ValueError(f"{size} terms are too many to pack into 64-bit keys")
        return ((self.type.astype(np.int64) * size + self.premise) * 2 + self.mark) * size + self.conclusion

    @property
    def delta(self) -> Ints:
        """Amounts with their signs; counts as they are."""
        return np.where(self.operator == 0, -self.amount, self.amount)

    def column(self, name: str) -> Ints:
        """Return the codes of a typed column of the rule table, -1 where it is null."""
        if name not in _SOURCES:
            return getattr(self, name)
        none = np.full(len(self), -1, dtype=np.int32)
        parts = [none, self.premise, self.mark, self.conclusion, self.state]
        return np.choose(_SOURCES[name][self.type], parts)

    def value(self, column: str, code: int) -> Any:
        """Return the value of a typed column for one of its codes."""
        if code < 0 or column in NUMBERS:
            return None if code < 0 else code
        return NAMED_CODES.get(column, self.terms.names)[code]

    def rule(self, row: int) -> ParsedRule:
        """Return one rule as typed parts."""
        one = self.take(np.array([row]))
        return ParsedRule(**{name: self.value(name, int(one.column(name)[0])) for name in TYPED_COLUMNS})


ARRAYS = tuple(part.name for part in fields(RuleBase))[2:]


def _source(column: str, rule_type: str) -> int:
    """Return what fills a column: nothing, premise, mark, conclusion, or the state of a premise of two atoms."""
    shape = RULE_SHAPES[rule_type]
    mark = "role" if shape.with_role else "trigger_operator" if rule_type in SIGNED else ""
    both = "state" if rule_type == "place_state2attr" else ""
    parts = ("", shape.premise_column, mark, shape.conclusion_column, both)
    return parts.index(column) if column in parts else 0


_SOURCES = {
    name: np.array([_source(name, rule_type) for rule_type in ALL_TYPES])
    for name in TYPED_COLUMNS
    if name not in ("type", "operator", *NUMBERS)
}
