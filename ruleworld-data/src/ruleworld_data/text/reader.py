"""Read rule tables back from their texts, all rows, at Arrow speed.

Five million rules consist of about two hundred thousand distinct halves, so Arrow splits the texts and finds
the distinct halves, Python parses each of those once, and numpy does the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..spec import RULE_TYPES
from .english import parse_conclusion_nl, parse_premise_nl
from .fol import Clause, parse_clause_fol
from .parser import (
    CONCLUSION_ABOUT,
    FOL_ARROW,
    NL_COMMA,
    RULE_SHAPES,
    ParsedRule,
    parse_rule_fol,
    parse_rule_nl,
)
from .rulebase import NAMED_CODES, OPERATORS, TYPE_CODE, Ints, RuleBase, Terms, show, typed_codes

_KINDS = ("entity", "state", "unary", "in", "act", "change", "has")
_KIND_CODE = {name: code for code, name in enumerate(_KINDS)}
_BAD = len(_KINDS)
_CHUNK = 250_000

Halves = tuple[pa.DictionaryArray, pa.DictionaryArray]
"""Premises and conclusions of many texts, dictionary-encoded."""


def parse_rule_table(table: pa.Table) -> RuleBase:
    """Parse every rule of a table from its texts and compare the result to every other column it has.

    Parameters
    ----------
    table : pyarrow.Table
        Rows of the rule table; needs ``id`` and ``fol``, checks what else is there.

    Returns
    -------
    RuleBase

    Raises
    ------
    ValueError
        If a text does not parse or the columns of a row disagree; the message names the rule.
    """
    reader = RuleReader()
    base = reader.read(table.to_batches(max_chunksize=_CHUNK))
    for problem in reader.problems.values():
        raise ValueError(f"{problem.examples[0]} ({problem.count} such rules)")
    return base


@dataclass
class Problem:
    """How often something went wrong, and the first few cases in words."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, rows: Ints, describe: Callable[[int], str], limit: int = 5) -> None:
        """Count the rows and describe the first of them."""
        self.count += len(rows)
        self.examples += [describe(int(row)) for row in rows[: max(0, limit - len(self.examples))]]


class RuleReader:
    """Reads rule tables in batches; terms and halves are shared by everything that one reader reads.

    Attributes
    ----------
    problems : dict
        `Problem` by check: ``rule_fol``, ``rule_nl`` (a text does not parse), ``rule_texts`` (the two texts
        differ), ``rule_halves`` (the premise and conclusion columns), ``rule_columns`` (the typed columns).
    """

    def __init__(self) -> None:
        self.terms = Terms()
        self.problems: dict[str, Problem] = {}
        fol = _Halves(parse_clause_fol, self.terms), _Halves(parse_clause_fol, self.terms)
        self._fol = _Language("fol", FOL_ARROW, *fol, parse_rule_fol)
        premises = _Halves(parse_premise_nl, self.terms, start="If ")
        conclusions = _Halves(parse_conclusion_nl, self.terms, end=".")
        self._nl = _Language("nl", NL_COMMA, premises, conclusions, parse_rule_nl)

    def read(self, batches: Iterable[pa.RecordBatch]) -> RuleBase:
        """Read batches with the columns ``id``, ``fol`` and any others of the rule table."""
        self.problems = {}
        names = [part.name for part in fields(RuleBase) if part.name != "terms"]
        parts: dict[str, list[Ints]] = {name: [] for name in names}
        for batch in batches:
            base = self._batch(batch)
            for name in names:
                parts[name].append(getattr(base, name))
        # One column after the other, so that only one is in memory twice.
        empty = np.empty(0, dtype=np.int64)
        return RuleBase(self.terms, **{name: np.concatenate(parts.pop(name) or [empty]) for name in names})

    def _batch(self, batch: pa.RecordBatch) -> RuleBase:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if not {"id", "fol"} <= columns.keys():
            raise ValueError(f"a rule table needs the columns id and fol, got {', '.join(columns)}")
        ids = columns["id"].to_numpy()
        fol, fol_key = self._text(self._fol, columns)
        nl, nl_key = self._text(self._nl, columns) if "nl" in columns else (fol, fol_key)
        differ = (fol["type"] >= 0) & (nl["type"] >= 0)
        differ &= ~np.logical_and.reduce([fol[part] == nl[part] for part in fol])

        def describe(row: int) -> str:
            pair = f"{columns['fol'][row].as_py()!r} and {columns['nl'][row].as_py()!r}"
            return f"rule {ids[row]}: its two texts say different things: {pair}"

        self._note("rule_texts", differ, describe)
        # A rule whose FOL cannot be read is reported and left out: nothing can be derived from it.
        rows = np.flatnonzero(fol["type"] >= 0)
        base = RuleBase(self.terms, ids, **fol, fol_key=fol_key, nl_key=nl_key).take(rows)
        for name, wanted in typed_codes(base).items():
            if name in columns:
                self._typed(name, base.id, wanted, columns[name].take(pa.array(rows)))
        return base

    def _note(self, check: str, bad: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        if bad.any():
            self.problems.setdefault(check, Problem()).add(np.flatnonzero(bad), describe)

    def _text(self, language: _Language, columns: dict[str, pa.Array]) -> tuple[dict[str, Ints], Ints]:
        """Parse one text of every row; check it against the columns of its halves."""
        ids, texts = columns["id"], columns[language.name]
        halves = language.split(texts)
        parts = language.combine(halves)
        self._note(
            f"rule_{language.name}",
            parts["type"] < 0,
            lambda row: f"rule {ids[row]}: {language.complaint(texts[row].as_py())}",
        )
        for half, shown in zip(("premise", "conclusion"), language.bare(halves), strict=True):
            column = columns.get(f"{half}_{language.name}")
            if column is not None:
                self._half(f"{half}_{language.name}", ids, shown, column)
        return parts, language.key(halves)

    def _half(self, name: str, ids: pa.Array, shown: pa.Array, column: pa.Array) -> None:
        same = pc.equal(shown, column.cast(pa.string())).fill_null(False)

        def describe(row: int) -> str:
            return f"rule {ids[row]}: {name} is {column[row].as_py()!r}, its text has {shown[row].as_py()!r}"

        self._note("rule_halves", ~same.to_numpy(zero_copy_only=False), describe)

    def _typed(self, name: str, ids: Ints, wanted: Ints, column: pa.Array) -> None:
        if name == "amount":
            shipped = column.fill_null(-1).to_numpy(zero_copy_only=False)
        elif name in NAMED_CODES:
            code = pc.index_in(column.cast(pa.string()), pa.array(NAMED_CODES[name]))
            unknown = pc.and_(pc.is_null(code), pc.is_valid(column))
            shipped = pc.if_else(unknown, -2, code.fill_null(-1)).to_numpy(zero_copy_only=False)
        else:
            shipped = self.terms.encode(column)

        def describe(row: int) -> str:
            said = show(name, int(wanted[row]), self.terms)
            return f"rule {ids[row]}: column {name} is {column[row].as_py()!r}, its text says {said!r}"

        self._note("rule_columns", shipped != wanted, describe)


class _Language:
    """One of the two texts: how to split it, and its distinct halves, each parsed once."""

    def __init__(
        self,
        name: str,
        separator: str,
        premises: _Halves,
        conclusions: _Halves,
        parse: Callable[[str], ParsedRule],
    ) -> None:
        self.name, self.separator, self._parse = name, separator, parse
        self._premises, self._conclusions = premises, conclusions

    def split(self, texts: pa.Array) -> Halves:
        """Split into dictionary-encoded halves; a text without the separator gives an empty second half."""
        parts = pc.split_pattern(texts.cast(pa.string()).fill_null(""), self.separator, max_splits=1)
        if len(texts) and pc.min(pc.list_value_length(parts)).as_py() < 2:
            whole = pc.list_element(parts, 0)
            short = pc.equal(pc.list_value_length(parts), 1)
            longer = pc.if_else(short, pc.binary_join_element_wise(whole, "", self.separator), texts)
            parts = pc.split_pattern(longer, self.separator, max_splits=1)
        return pc.list_element(parts, 0).dictionary_encode(), pc.list_element(parts, 1).dictionary_encode()

    def complaint(self, text: str | None) -> str:
        """Say why a text does not parse."""
        try:
            self._parse(text or "")
        except ValueError as error:
            return str(error)
        return f"cannot read {text!r}"

    def bare(self, halves: Halves) -> tuple[pa.Array, pa.Array]:
        """Return both halves of every row as the premise and conclusion columns write them."""
        return self._premises.bare(halves[0]), self._conclusions.bare(halves[1])

    def key(self, halves: Halves) -> Ints:
        """Return one integer per row, equal exactly where the texts are."""
        return self._premises.numbers(halves[0]) << 32 | self._conclusions.numbers(halves[1])

    def combine(self, halves: Halves) -> dict[str, Ints]:
        """Join the parsed halves of every row; ``type`` is -1 where they do not form a rule."""
        first = _Parts(self._premises.packed(halves[0]))
        second = _Parts(self._conclusions.packed(halves[1]))
        rule_type = _SHAPE[first.kind, second.kind]
        trigger = first.kind == _KIND_CODE["change"]
        wrong = (first.who != 0) | (trigger & (first.amount != 1)) | ~_ABOUT[rule_type, second.who]
        return {
            "type": np.where(wrong, -1, rule_type).astype(np.int8),
            "premise": first.term.astype(np.int32),
            "mark": np.where(trigger, first.operator, second.who).astype(np.int8),
            "conclusion": second.term.astype(np.int32),
            "operator": second.operator.astype(np.int8),
            "amount": second.amount.astype(np.int32),
        }


class _Halves(dict[str, int]):
    """Number of each distinct premise (or conclusion), parsed when first seen."""

    def __init__(self, parse: Callable[[str], Clause], terms: Terms, start: str = "", end: str = "") -> None:
        super().__init__()
        self._parse, self._terms, self._start, self._end = parse, terms, start, end
        self._packed = array("q")

    def __missing__(self, text: str) -> int:
        bare = self._strip(text)
        try:
            code = _BAD if bare is None else _pack(self._parse(bare), self._terms)
        except ValueError:
            code = _BAD
        self[text] = number = len(self._packed)
        self._packed.append(code)
        return number

    def _strip(self, text: str) -> str | None:
        if text.startswith(self._start) and text.endswith(self._end):
            return text[len(self._start) : len(text) - len(self._end)]
        return None

    def bare(self, half: pa.DictionaryArray) -> pa.Array:
        """Return the text of every row without ``If`` or full stop, null where it lacks them."""
        return pa.array(map(self._strip, half.dictionary.to_pylist()), pa.string()).take(half.indices)

    def numbers(self, half: pa.DictionaryArray) -> Ints:
        """Return the number of every row's half."""
        distinct = half.dictionary.to_pylist()
        return np.fromiter(map(self.__getitem__, distinct), np.int64, len(distinct))[half.indices.to_numpy()]

    def packed(self, half: pa.DictionaryArray) -> Ints:
        """Return the parsed parts of every row's half, packed."""
        numbers = self.numbers(half)
        return np.array(self._packed, dtype=np.int64)[numbers]


def _pack(clause: Clause, terms: Terms) -> int:
    sign = 0 if clause.operator is None else 1 + OPERATORS.index(clause.operator)
    amount = 0 if clause.amount is None else clause.amount + 1
    return (
        _KIND_CODE[clause.kind]
        | "AB".index(clause.who) << 4
        | sign << 5
        | amount << 7
        | terms[clause.term] << 38
    )


class _Parts:
    """Packed clauses as arrays."""

    def __init__(self, packed: Ints) -> None:
        self.kind = packed & 15
        self.who = packed >> 4 & 1
        self.operator = (packed >> 5 & 3) - 1
        self.amount = (packed >> 7 & (1 << 31) - 1) - 1
        self.term = packed >> 38


_SHAPE = np.full((_BAD + 1, _BAD + 1), -1, dtype=np.int8)
for _shape, _name in RULE_SHAPES.items():
    _SHAPE[_KIND_CODE[_shape[0]], _KIND_CODE[_shape[1]]] = TYPE_CODE[_name]
# May a rule of the type (last row: of no type) conclude about A, about B?
_ABOUT = np.array(
    [[who in CONCLUSION_ABOUT.get(name, "A") for who in "AB"] for name in RULE_TYPES] + [[False] * 2]
)
