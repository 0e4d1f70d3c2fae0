"""All rules of a table as a few integer arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..spec import RULE_TYPES
from .parser import PREMISE_COLUMN, ParsedRule

OPERATORS = ("minus", "plus")
ROLES = ("actor", "target")
TYPE_CODE = {name: code for code, name in enumerate(RULE_TYPES)}
NAMED_CODES = {"type": RULE_TYPES, "role": ROLES, "operator": OPERATORS, "trigger_operator": OPERATORS}
TYPED_COLUMNS = tuple(part.name for part in fields(ParsedRule))
Ints = NDArray[np.integer]


class Terms(dict[str, int]):
    """Numbers for names, handed out on first use; `names` lists them in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

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
    id : ndarray of int32
        Rule ids.
    type : ndarray of int8
        Index in `RULE_TYPES`.
    premise : ndarray of int32
        Term of the premise: entity, action, environment, state or trigger attribute.
    mark : ndarray of int8
        What else the premise fixes: the trigger's operator, or the role (0 actor, 1 target) that the
        conclusion is about.
    conclusion : ndarray of int32
        Term of the conclusion: attribute, environment or state.
    operator : ndarray of int8
        0 minus, 1 plus, -1 if the conclusion is no change.
    amount : ndarray of int32
        Count or units; -1 if the conclusion has none.
    fol_key, nl_key : ndarray of int64
        Equal exactly where two texts are equal.
    """

    terms: Terms
    id: Ints
    type: Ints
    premise: Ints
    mark: Ints
    conclusion: Ints
    operator: Ints
    amount: Ints
    fol_key: Ints
    nl_key: Ints

    def __len__(self) -> int:
        return len(self.id)

    def take(self, rows: Ints) -> RuleBase:
        """Return the base with only some rows."""
        arrays = {part.name: getattr(self, part.name)[rows] for part in fields(self) if part.name != "terms"}
        return RuleBase(self.terms, **arrays)

    def rows_of(self, rule_type: str) -> Ints:
        """Row numbers of one rule type."""
        return np.flatnonzero(self.type == TYPE_CODE[rule_type])

    def rule(self, row: int) -> ParsedRule:
        """Return one rule as typed parts."""
        codes = typed_codes(self.take(np.array([row])))
        return ParsedRule(**{name: show(name, int(code[0]), self.terms) for name, code in codes.items()})


def typed_codes(base: RuleBase) -> dict[str, Ints]:
    """Spread the arrays over the typed columns of the rule table, -1 where a column is null."""
    kind = np.array(RULE_TYPES)[base.type]
    none = np.full(len(base), -1, dtype=np.int32)
    roles = np.isin(kind, ("action2attr", "action2state"))
    trigger = kind == "attrchange2attr"
    place, mood = kind == "action2env", np.isin(kind, ("action2state", "env2state"))
    columns = {
        "type": base.type,
        "role": np.where(roles, base.mark, none),
        "trigger_attribute": np.where(trigger, base.premise, none),
        "trigger_operator": np.where(trigger, base.mark, none),
        "attribute": np.where(place | mood, none, base.conclusion),
        "operator": base.operator,
        "amount": base.amount,
    }
    for name in ("entity", "action", "environment", "state"):
        own = np.isin(kind, [rule_type for rule_type, column in PREMISE_COLUMN.items() if column == name])
        columns[name] = np.where(own, base.premise, none)
    columns["environment"] = np.where(place, base.conclusion, columns["environment"])
    columns["state"] = np.where(mood, base.conclusion, columns["state"])
    return {name: columns[name] for name in TYPED_COLUMNS}


def show(column: str, code: int, terms: Terms) -> Any:
    """Return the value of a typed column for one of `typed_codes`."""
    if code < 0 or column == "amount":
        return None if code < 0 else code
    return NAMED_CODES.get(column, terms.names)[code]
