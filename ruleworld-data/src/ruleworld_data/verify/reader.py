"""Read rule tables back from their texts, all rows, at Arrow speed.

Five million rules consist of about two hundred thousand distinct halves, so Arrow splits the texts and finds
the distinct halves, Python parses each of those once, and numpy does the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..spec import OPERATORS
from ..text import Fact, ParsedRule, parse_rule_fol, parse_rule_nl
from ..text.english import parse_conclusion_nl, parse_premise_nl
from ..text.fol import parse_conclusion_fol, parse_premise_fol
from ..text.parser import FOL_ARROW, NL_COMMA, type_of_rule
from ..world import Ints
from .report import Findings
from .rulebase import (
    ALL_TYPES,
    ARRAYS,
    NAMED_CODES,
    NUMBERS,
    SIGNED,
    TYPE_CODE,
    TYPED_COLUMNS,
    RuleBase,
    Terms,
)

_CHUNK = 250_000
_SHAPES = [
    (kind, who, one)
    for kind in ("entity", "state", "is", "in", "act", "change", "has", "both", "count")
    for who in "AB"
    for one in (False, True)
]
"""All that the type of a rule depends on in a clause: its kind, whom it is about, and whether its number is 1."""
_SHAPE_CODE = {shape: code for code, shape in enumerate(_SHAPES)}
_UNREADABLE = len(_SHAPES)
_SIGNED_CODES = [TYPE_CODE[name] for name in SIGNED]


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
    findings = Findings()
    base = TableReader().read(table.to_batches(max_chunksize=_CHUNK), findings)
    if failed := next((check for check in findings.values() if check.failures), None):
        raise ValueError(f"{failed.examples[0]} ({failed.failures} such rules)")
    return base


class TableReader:
    """Reads rule tables; terms and the keys of texts are shared by all tables that one reader reads."""

    def __init__(self) -> None:
        self.terms = Terms()
        logic, english = (parse_premise_fol, parse_conclusion_fol), (parse_premise_nl, parse_conclusion_nl)
        self._fol = _Language("fol", ("", FOL_ARROW, ""), logic, parse_rule_fol, self.terms)
        self._nl = _Language("nl", ("If ", NL_COMMA, "."), english, parse_rule_nl, self.terms)

    def read(self, batches: Iterable[pa.RecordBatch], findings: Findings) -> RuleBase:
        """Read batches with the columns ``id``, ``fol`` and any others of the rule table.

        Fills the checks ``rule_fol``, ``rule_nl`` (a text does not parse), ``rule_texts`` (the two texts differ),
        ``rule_halves`` (the premise and conclusion columns) and ``rule_columns`` (the typed columns). A rule whose FOL
        cannot be read is left out: nothing can be derived from it.
        """
        parts: dict[str, list[Ints]] = {name: [] for name in ARRAYS}
        worlds: set[str] = set()
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if "world_id" in columns:
                worlds.update(map(str, columns["world_id"].unique().to_pylist()))
            base = self._batch(columns, findings)
            for name in ARRAYS:
                parts[name].append(getattr(base, name))
        # One column after the other, so that only one is in memory twice.
        empty = np.empty(0, dtype=np.int64)
        arrays = {name: np.concatenate(parts.pop(name) or [empty]) for name in ARRAYS}
        return RuleBase(self.terms, tuple(sorted(worlds)), **arrays)

    def _batch(self, columns: dict[str, pa.Array], findings: Findings) -> RuleBase:
        if not {"id", "fol"} <= columns.keys():
            raise ValueError(f"a rule table needs the columns id and fol, got {', '.join(columns)}")
        ids = columns["id"].to_numpy()
        fol, fol_key = self._fol.read(columns, findings)
        nl, nl_key = self._nl.read(columns, findings) if "nl" in columns else (fol, fol_key)
        differ = (fol["type"] >= 0) & (nl["type"] >= 0)
        differ &= ~np.logical_and.reduce([fol[part] == nl[part] for part in fol])
        findings["rule_texts"].fail_rows(
            np.flatnonzero(differ),
            lambda row: (
                f"rule {ids[row]}: its two texts say different things: "
                f"{columns['fol'][row].as_py()!r} and {columns['nl'][row].as_py()!r}"
            ),
        )
        rows = np.flatnonzero(fol["type"] >= 0)
        in_paper = columns.get("in_paper", pa.nulls(len(ids), pa.bool_())).fill_null(False)
        paper = in_paper.to_numpy(zero_copy_only=False)
        keys = {"in_paper": paper, "fol_key": fol_key, "nl_key": nl_key}
        base = RuleBase(self.terms, (), ids, **fol, **keys).take(rows)
        for name in TYPED_COLUMNS:
            if name in columns:
                self._check_column(name, base, columns[name].take(pa.array(rows)), findings)
        return base

    def _check_column(self, name: str, base: RuleBase, column: pa.Array, findings: Findings) -> None:
        """Compare a typed column to what the texts say."""
        wanted = base.column(name)
        if name in NUMBERS:
            shipped = column.fill_null(-1).to_numpy(zero_copy_only=False)
        elif name in NAMED_CODES:
            code = pc.index_in(column.cast(pa.string()), pa.array(NAMED_CODES[name]))
            unknown = pc.and_(pc.is_null(code), pc.is_valid(column))
            shipped = pc.if_else(unknown, -2, code.fill_null(-1)).to_numpy(zero_copy_only=False)
        else:
            shipped = self.terms.encode(column)
        findings["rule_columns"].fail_rows(
            np.flatnonzero(shipped != wanted),
            lambda row: (
                f"rule {base.id[row]}: column {name} is {column[row].as_py()!r}, its text says "
                f"{base.value(name, int(wanted[row]))!r}"
            ),
        )


class _Language:
    """One of the two texts: how to split it, and its distinct halves, each parsed once.

    ``frame`` is what stands before, between and after the halves.
    """

    def __init__(
        self,
        name: str,
        frame: tuple[str, str, str],
        parsers: tuple[Callable[..., Fact], Callable[..., Fact]],
        parse: Callable[..., ParsedRule],
        terms: Terms,
    ) -> None:
        self.name, self.frame, self._parse = name, frame, parse
        self._premises = _Halves(parsers[0], terms, start=frame[0])
        self._conclusions = _Halves(parsers[1], terms, end=frame[2])

    def read(self, columns: dict[str, pa.Array], findings: Findings) -> tuple[dict[str, Ints], Ints]:
        """Parse the text of every row; return the arrays of a `RuleBase` and the key of each text.

        ``type`` is -1 where a text is no rule.
        """
        ids, texts = columns["id"], columns[self.name].cast(pa.string())
        before, between, after = self.frame
        # A text without the separator has an empty second half.
        whole = texts.fill_null("")
        found = pc.match_substring(whole, between)
        parts = pc.split_pattern(
            pc.if_else(found, whole, pc.binary_join_element_wise(whole, "", between)), between, max_splits=1
        )
        first = self._premises.numbers(pc.list_element(parts, 0).dictionary_encode())
        second = self._conclusions.numbers(pc.list_element(parts, 1).dictionary_encode())
        shape, _, premise, operator, number, state = self._premises.parsed(first)
        other_shape, who, conclusion, its_operator, amount, *_ = self._conclusions.parsed(second)
        rule_type = _types()[shape, other_shape]
        findings[f"rule_{self.name}"].fail_rows(
            np.flatnonzero(rule_type < 0),
            lambda row: f"rule {ids[row]}: {self._complaint(texts[row].as_py())}",
        )
        if {f"premise_{self.name}", f"conclusion_{self.name}"} <= columns.keys():
            halves = [columns[f"{half}_{self.name}"].cast(pa.string()) for half in ("premise", "conclusion")]
            joined = pc.binary_join_element_wise(before, halves[0], between, halves[1], after, "")
            same = pc.equal(joined, texts).fill_null(False).to_numpy(zero_copy_only=False)
            findings["rule_halves"].fail_rows(
                np.flatnonzero(~same),
                lambda row: (
                    f"rule {ids[row]}: {halves[0][row].as_py()!r} and {halves[1][row].as_py()!r} are not "
                    f"the halves of {texts[row].as_py()!r}"
                ),
            )
        arrays = {
            "type": rule_type,
            "premise": premise,
            "mark": np.where(np.isin(rule_type, _SIGNED_CODES), operator, who).astype(np.int8),
            "conclusion": conclusion,
            "operator": its_operator.astype(np.int8),
            "amount": amount,
            "state": state,
            "threshold": np.where(rule_type == TYPE_CODE["count2state"], number, -1),
        }
        return arrays, first << 32 | second

    def _complaint(self, text: str | None) -> str:
        """Say why a text does not parse."""
        try:
            self._parse(text or "")
        except ValueError as error:
            return str(error)
        return f"cannot read {text!r}"


class _Halves(dict[str, int]):
    """Number of each distinct premise (or conclusion), parsed when first seen."""

    def __init__(self, parse: Callable[[str], Fact], terms: Terms, start: str = "", end: str = "") -> None:
        super().__init__()
        self._parse, self._terms, self._start, self._end = parse, terms, start, end
        self._parsed = array("i")

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        parts = (_UNREADABLE, 0, 0, -1, -1, -1)
        if text.startswith(self._start) and text.endswith(self._end):
            with suppress(ValueError):
                clause = self._parse(text[len(self._start) : len(text) - len(self._end)])
                operator = -1 if clause.operator is None else OPERATORS.index(clause.operator)
                count = -1 if clause.number is None else clause.number
                shape = _SHAPE_CODE[clause.kind, clause.who, clause.number == 1]
                state = -1 if clause.state is None else self._terms[clause.state]
                parts = (
                    shape,
                    "AB".index(clause.who),
                    self._terms[clause.term],
                    operator,
                    count,
                    state,
                )
        self._parsed.extend(parts)
        return number

    def numbers(self, half: pa.DictionaryArray) -> Ints:
        """Return the number of every row's half."""
        distinct = half.dictionary.to_pylist()
        return np.fromiter(map(self.__getitem__, distinct), np.int64, len(distinct))[half.indices.to_numpy()]

    def parsed(self, numbers: Ints) -> Ints:
        """Return shape, who (0 A, 1 B), term, operator, number and state of clauses, one row each."""
        return np.array(self._parsed, dtype=np.int32).reshape(-1, 6).T[:, numbers]


@lru_cache(maxsize=1)
def _types() -> Ints:
    """Return the rule type by the shapes of premise and conclusion, -1 where they make no rule."""
    clauses = [Fact(kind, who, "", number=int(one)) for kind, who, one in _SHAPES]
    table = np.full((len(_SHAPES) + 1, len(_SHAPES) + 1), -1, dtype=np.int8)
    for i, premise in enumerate(clauses):
        for j, conclusion in enumerate(clauses):
            with suppress(ValueError):
                table[i, j] = ALL_TYPES.index(type_of_rule(premise, conclusion, ""))
    return table
