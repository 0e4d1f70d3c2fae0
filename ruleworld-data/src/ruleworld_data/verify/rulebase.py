"""All rules of a table as a frame of integers, read back from their texts.

Five million rules consist of about two hundred thousand distinct halves: each of those is parsed once, and numpy does
the rest.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..spec import EXTRA_TYPES, OPERATORS, ROLES, RULE_TYPES, check_columns, check_kind
from ..text import Fact, parse_rule
from ..text.parser import READERS, RULE_SHAPES, type_of_rule
from ..world import Ints
from .report import Report

ALL_TYPES = (*RULE_TYPES, *EXTRA_TYPES)
TYPE_CODE = {name: code for code, name in enumerate(ALL_TYPES)}
_SIGNED = [TYPE_CODE[name] for name in ("attrchange2attr", "count2state")]
"""Types whose premise has an operator."""
_TYPED = (
    "type entity action role environment state trigger_attribute trigger_operator attribute operator amount threshold"
).split()
_PARTS = "type premise mark conclusion operator amount state entity place threshold".split()
"""Columns of a `RuleBase` that a text tells."""
_UNREADABLE = (None, (0, 0, -1, -1, -1, -1, -1))
_CHUNK = 250_000
_NO_RULES = pa.record_batch({"id": pa.array([], pa.int32()), "fol": pa.array([], pa.string())})


class Codes(dict[Any, int]):
    """Numbers for names (or other values), handed out on first use; `names` lists them in order."""

    def __init__(self, names: Iterable[Any] = ()) -> None:
        self.names = list(names)
        super().__init__({name: code for code, name in enumerate(self.names)})

    def __missing__(self, name: Any) -> int:
        self[name] = code = len(self.names)
        self.names.append(name)
        return code


@dataclass(frozen=True)
class RuleBase:
    """Rules as integers, one row each, its index the row number.

    The columns are ``id``; ``type`` (index in `ALL_TYPES`); ``premise`` and ``conclusion`` (their terms); ``mark``,
    what else the premise fixes: the trigger's operator (of a threshold 0 fewer, 1 more), or the role (0 actor, 1
    target) that the conclusion is about; ``operator`` (0 minus, 1 plus, -1 if the conclusion is no change); ``amount``
    (count or units, -1 if the conclusion has none); ``state`` (of a premise of a place and a state, else -1);
    ``entity`` and ``place`` (of an exception, else -1); ``threshold`` (else -1); ``in_paper``; and ``fol_key`` and
    ``nl_key``, hashes of the texts.
    """

    terms: Codes  # names behind the codes
    worlds: tuple[str, ...]  # that the table names; one, if it is sound
    rules: pd.DataFrame

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, column: str) -> Ints:
        return self.rules[column].to_numpy()

    @property
    def world_id(self) -> str:
        """Name of the world."""
        return next(iter(self.worlds), "")

    def of_type(self, *rule_types: str) -> pd.DataFrame:
        """Return the rules of some types."""
        return self.rules[np.isin(self["type"], [TYPE_CODE[name] for name in rule_types])]

    def find(self, ids: Iterable[int]) -> Ints:
        """Return the row of each rule id, -1 for an id that no rule has."""
        order, known = self._sorted
        wanted = np.fromiter(ids, dtype=np.int64)
        spot = np.searchsorted(known[:-1], wanted)
        return np.where(known[spot] == wanted, order[spot], -1)

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        order = np.argsort(self["id"], kind="stable")
        return np.append(order, -1), np.append(self["id"][order].astype(np.int64), np.iinfo(np.int64).min)


def typed_columns(rules: pd.DataFrame, terms: Codes) -> dict[str, pa.Array]:
    """Return what the typed columns of the rule table must say of some rules."""
    codes = {name: np.full(len(rules), -1, dtype=np.int32) for name in _TYPED}
    codes |= {name: rules[name].to_numpy() for name in ("type", "operator", "amount", "threshold")}
    for rule_type, shape in RULE_SHAPES.items():
        own = (rules["type"] == TYPE_CODE[rule_type]).to_numpy()
        for name, part in shape.columns.items():
            codes[name][own] = rules[part].to_numpy()[own]
    names = {"type": ALL_TYPES, "role": ROLES, "operator": OPERATORS, "trigger_operator": OPERATORS}
    columns = {name: pa.array(values.astype(np.int32), mask=values < 0) for name, values in codes.items()}
    return {
        name: values
        if name in ("amount", "threshold")
        else pa.array(names.get(name, terms.names), pa.string()).take(values)
        for name, values in columns.items()
    }


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
    check_kind("rules", table, pa.Table, "table('rules', WorldSpec('tiny'))")
    report = Report()
    base = TableReader().read(table.to_batches(max_chunksize=_CHUNK), report)
    if failed := next((check for check in report.checks if check.failures), None):
        raise ValueError(f"{failed.examples[0]} ({failed.failures} such rules)")
    return base


class TableReader:
    """Reads rule tables; terms and the keys of texts are shared by all tables that one reader reads."""

    def __init__(self) -> None:
        self.terms = Codes()
        self._halves: dict[tuple[str, int, str], tuple[Fact | None, tuple[int, ...]]] = {}

    def read(self, batches: Iterable[pa.RecordBatch], report: Report) -> RuleBase:
        """Read batches with the columns ``id``, ``fol`` and any others of the rule table.

        Fills the checks ``rule_fol``, ``rule_nl`` (a text does not parse), ``rule_texts`` (the two texts differ),
        ``rule_halves`` (the premise and conclusion columns) and ``rule_columns`` (the typed columns). A rule whose FOL
        cannot be read is left out: nothing can be derived from it.
        """
        frames, worlds = list[pd.DataFrame](), set[str]()
        for batch in chain([_NO_RULES], batches):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            check_columns("a rule table", columns, "id", "fol")
            if "world_id" in columns:
                worlds.update(map(str, columns["world_id"].unique().to_pylist()))
            frames.append(self._rules(columns, report))
        return RuleBase(self.terms, tuple(sorted(worlds)), pd.concat(frames, ignore_index=True))

    def _rules(self, columns: dict[str, pa.Array], report: Report) -> pd.DataFrame:
        ids = columns["id"].to_numpy()
        fol, fol_key = self._parts("fol", columns, report)
        nl, nl_key = self._parts("nl", columns, report) if "nl" in columns else (fol, fol_key)
        differ = (fol["type"] >= 0) & (nl["type"] >= 0) & (fol != nl).any(axis=1)
        report["rule_texts"].fail_rows(
            np.flatnonzero(differ),
            lambda row: (
                f"rule {ids[row]}: its two texts say different things: "
                f"{columns['fol'][row].as_py()!r} and {columns['nl'][row].as_py()!r}"
            ),
        )
        paper = columns.get("in_paper", pa.nulls(len(ids), pa.bool_())).fill_null(False)
        paper = paper.to_numpy(zero_copy_only=False)
        rules = fol.assign(id=ids, in_paper=paper, fol_key=fol_key, nl_key=nl_key)[fol["type"] >= 0]
        for name, wanted in typed_columns(rules, self.terms).items():
            if name in columns:
                given = columns[name].cast(wanted.type).take(pa.array(rules.index))
                same = pc.if_else(pc.is_null(given), pc.is_null(wanted), pc.equal(given, wanted))
                report["rule_columns"].fail_rows(
                    np.flatnonzero(~same.fill_null(False).to_numpy(zero_copy_only=False)),
                    lambda row, name=name, given=given, wanted=wanted: (
                        f"rule {rules['id'].iloc[row]}: column {name} is {given[row].as_py()!r}, "
                        f"its text says {wanted[row].as_py()!r}"
                    ),
                )
        return rules

    def _parts(self, name: str, columns: dict[str, pa.Array], report: Report) -> tuple[pd.DataFrame, Ints]:
        """Parse one text of every row; return the parts of a `RuleBase` and the key of each text.

        ``type`` is -1 where a text is no rule.
        """
        ids, texts = columns["id"], columns[name].to_pylist()
        halves = [_cut(name, text) for text in texts]
        parts = np.array([self._rule(name, *pair) for pair in halves], np.int32).reshape(-1, len(_PARTS))
        rules = pd.DataFrame(parts, columns=_PARTS)
        report[f"rule_{name}"].fail_rows(
            np.flatnonzero(rules["type"] < 0),
            lambda row: f"rule {ids[row]}: {_complaint(name, texts[row])}",
        )
        if {f"premise_{name}", f"conclusion_{name}"} <= columns.keys():
            sides = [columns[f"{half}_{name}"].to_pylist() for half in ("premise", "conclusion")]
            given = list(zip(*sides, strict=True))
            report["rule_halves"].fail_rows(
                [row for row, own in enumerate(halves) if given[row] != own],
                lambda row: f"rule {ids[row]}: {given[row]} are not the halves of {texts[row]!r}",
            )
        # Hashes do for finding what is there twice.
        return rules, pd.util.hash_array(np.array([text or "" for text in texts], dtype=object))

    def _rule(self, name: str, premise: str, conclusion: str) -> tuple[int, ...]:
        """Return `_PARTS` of the rule that two halves make."""
        shape, (_, term, trigger_operator, number, *more) = self._half(name, 0, premise)
        other, (who, changed, operator, amount, *_) = self._half(name, 1, conclusion)
        kind = _type(shape, other)
        mark = trigger_operator if kind in _SIGNED else who
        threshold = number if kind == TYPE_CODE["count2state"] else -1
        return kind, term, mark, changed, operator, amount, *more, threshold

    def _half(self, name: str, side: int, text: str) -> tuple[Fact | None, tuple[int, ...]]:
        """Read a premise (0) or a conclusion (1), each distinct one once.

        Its shape is all that the type of a rule depends on: kind, whom it is about, and whether its number is 1. Then
        come who (0 A, 1 B), term, operator, number, and the state, kind and place that it names besides.
        """
        key = name, side, text
        if key not in self._halves:
            self._halves[key] = _UNREADABLE
            read = READERS[name][1:][side]
            with suppress(ValueError):
                clause = read(text)
                more = (clause.state, clause.entity, clause.place)
                self._halves[key] = (
                    Fact(clause.kind, clause.who, "", number=int(clause.number == 1)),
                    (
                        "AB".index(clause.who),
                        self.terms[clause.term],
                        -1 if clause.operator is None else OPERATORS.index(clause.operator),
                        -1 if clause.number is None else clause.number,
                        *(-1 if term is None else self.terms[term] for term in more),
                    ),
                )
        return self._halves[key]


def _cut(name: str, text: str | None) -> tuple[str, str]:
    """Return the halves of a text, empty where it has not two."""
    try:
        return READERS[name][0](text or "")
    except ValueError:
        return "", ""


def _complaint(name: str, text: str | None) -> str:
    """Say why a text does not parse."""
    try:
        parse_rule(name, text or "")
    except ValueError as error:
        return str(error)
    return f"cannot read {text!r}"


@lru_cache
def _type(premise: Fact | None, conclusion: Fact | None) -> int:
    """Return the code of the type of rule that two shapes of clauses make, -1 where they make none."""
    if premise and conclusion:
        with suppress(ValueError):
            return TYPE_CODE[type_of_rule(premise, conclusion, "")]
    return -1
