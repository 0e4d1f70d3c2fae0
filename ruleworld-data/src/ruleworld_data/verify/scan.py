"""Read question shards and reduce millions of rows to their distinct sub-questions.

Parallel questions combine a pool of sub-questions, so eleven million of them are a few hundred thousand distinct ones.
Arrow and numpy find these (on the integers of dictionary-encoded columns) and check what can be checked by row; the
logic then runs once per distinct sub-question (`units`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..spec import MINI_FOLD_SIZE, MINI_FOLDS
from ..text.rulebase import Ints
from .report import Findings
from .shards import Shard
from .unit import Step, Unit, UnitList

_ENCODED = [
    *(f"{name}.list.element" for name in ("facts", "queries", "answers", "answer_types")),
    *(f"steps.list.element.{name}" for name in ("nl", "fol", "state")),
    "skeleton",
]


@dataclass
class Rows:
    """What is kept of one shard's well-formed rows.

    Attributes
    ----------
    config, split, name : str
        Sub-task, split and file.
    ids, questions, skeletons : pyarrow.Array
        As shipped.
    units : ndarray
        Numbers of the sub-questions of all rows, flat.
    ends : ndarray
        Where each row's sub-questions end in ``units``.
    """

    config: str
    split: str
    name: str
    ids: pa.Array
    questions: pa.Array
    skeletons: pa.Array
    units: Ints
    ends: Ints

    def lists(self) -> Iterator[list[int]]:
        """Yield the sub-question numbers of each row."""
        units, start = self.units.tolist(), 0
        for end in self.ends.tolist():
            yield units[start:end]
            start = end


@dataclass
class Scan:
    """Distinct sub-questions of everything scanned so far.

    Attributes
    ----------
    units : UnitList
        Numbered by first occurrence.
    splits : dict
        For each split the numbers of its sub-questions.
    rows, parts : int
        Questions and sub-questions seen.
    """

    findings: Findings
    units: UnitList = field(default_factory=UnitList)
    splits: dict[str, set[int]] = field(default_factory=dict)
    rows: int = 0
    parts: int = 0

    def shard(self, shard: Shard, world_id: str) -> Iterator[Rows]:
        """Scan one shard, one row group at a time."""
        with pq.ParquetFile(shard.path, read_dictionary=_ENCODED) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                self.rows += len(table)
                yield self._table(table, shard, world_id)

    def _table(self, table: pa.Table, shard: Shard, world_id: str) -> Rows:
        hops = int(shard.config.rsplit("_", 1)[1]) if shard.config.startswith("multi_hop") else 1
        table = self._well_formed(table, shard, hops)
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        self._labels(columns, shard, world_id, hops)
        ends = np.cumsum(_lengths(columns["queries"]))
        units = self._units(columns, world_id, hops, ends)
        self.parts += len(units)
        self.splits.setdefault(shard.split, set()).update(np.unique(units).tolist())
        texts = columns["id"], columns["question"], columns["skeleton"]
        return Rows(shard.config, shard.split, shard.name, *texts, units, ends)

    def _well_formed(self, table: pa.Table, shard: Shard, hops: int) -> pa.Table:
        """Drop (and report) rows whose lists do not line up."""
        check = self.findings["question_shape"]
        check.checked += len(table)
        lengths = {
            name: _lengths(table.column(name)) for name in ("facts", "queries", "answers", "answer_types")
        }
        scopes = lengths["queries"]
        good = scopes >= 1
        for counts in lengths.values():
            good &= counts == scopes
        good &= _lengths(table.column("steps")) == (hops if hops > 1 else scopes)
        good &= (
            scopes == 1 if shard.config.startswith(("single", "multi_hop")) else (scopes >= 2) & (scopes <= 4)
        )
        for name in ("question", "facts", "queries", "answers", "answer_types", "steps", "gold_rule_ids"):
            column = table.column(name)
            holes = pc.is_null(column)
            good &= ~holes.to_numpy(zero_copy_only=False)
        ids = table.column("id")
        check.add_rows(
            np.flatnonzero(~good),
            lambda row: f"{shard.name}: {ids[row]}: facts, queries, answers, types and steps do not line up",
        )
        table = table.filter(pa.array(good)) if not good.all() else table
        steps = table.column("steps").combine_chunks()
        in_steps = pc.struct_field(steps.flatten(), "rule_ids")
        rules, counts = _lengths(in_steps), _lengths(steps)
        ends = np.cumsum(counts)
        sizes: Ints = np.diff(np.concatenate([[0], np.cumsum(rules)])[np.concatenate([[0], ends])])
        gold = table.column("gold_rule_ids").combine_chunks()
        same = _lengths(gold) == sizes
        if same.all():
            flat = _values(gold) != _values(in_steps)
            same[np.repeat(np.arange(len(table)), sizes)[flat]] = False
        ids = table.column("id")
        check.add_rows(
            np.flatnonzero(~same),
            lambda row: f"{shard.name}: {ids[row]}: gold_rule_ids are not the rule ids of its steps in order",
        )
        return table

    def _labels(self, columns: dict[str, pa.Array], shard: Shard, world_id: str, hops: int) -> None:
        check = self.findings["question_labels"]
        count = len(columns["id"])
        check.checked += count
        rules = _lengths(columns["gold_rule_ids"])
        wrong = {
            "subtask": pc.not_equal(columns["subtask"], shard.config),
            "world_id": pc.not_equal(columns["world_id"], world_id),
            "n_rules": pc.not_equal(columns["n_rules"], pa.array(rules)),
            "n_hops": pc.not_equal(columns["n_hops"], hops),
        }
        if shard.config.startswith(("multi_rule", "single_rule")):
            width = int(shard.config.rsplit("_", 1)[1]) if shard.config.startswith("multi_rule") else 1
            wrong["gold_rule_ids"] = pa.array(rules != width)
        folds = columns["fold"].fill_null(-1).to_numpy(zero_copy_only=False)
        if shard.split == "mini":
            sizes = np.bincount(folds[(folds >= 0) & (folds < MINI_FOLDS)], minlength=MINI_FOLDS)
            if sizes.tolist() != [MINI_FOLD_SIZE] * MINI_FOLDS:
                check.fail(
                    f"{shard.name}: folds have {sizes.tolist()} questions, expected {MINI_FOLD_SIZE} each"
                )
        else:
            wrong["fold"] = pa.array(folds != 0)
        for name, bad in wrong.items():
            rows = np.flatnonzero(bad.fill_null(True).to_numpy(zero_copy_only=False))
            shown = zip(
                columns["id"].take(pa.array(rows[:5])), columns[name].take(pa.array(rows[:5])), strict=True
            )
            check.add(len(rows), [f"{shard.name}: {row_id}: {name} is {value}" for row_id, value in shown])

    def _units(self, columns: dict[str, pa.Array], world_id: str, hops: int, ends: Ints) -> Ints:
        """Number the sub-questions of every row."""
        steps = columns["steps"].flatten()
        rule_ids = pc.struct_field(steps, "rule_ids")
        scope = [columns[name].flatten() for name in ("facts", "queries", "answers", "answer_types")]
        text = [pc.struct_field(steps, name) for name in ("nl", "fol", "state")]
        ids = _list_codes(rule_ids).reshape(-1, hops)
        codes = [_codes(column) for column in scope] + [ids[:, hop] for hop in range(hops)]
        codes += [_codes(column).reshape(-1, hops)[:, hop] for column in text for hop in range(hops)]
        local, first = _distinct(codes)
        rows = pa.array(np.searchsorted(ends, first, side="right"))
        cells = [column.take(pa.array(first)).to_pylist() for column in scope]
        spots = pa.array((first[:, None] * hops + np.arange(hops)).ravel())
        parts = [column.take(spots).to_pylist() for column in (rule_ids, *text)]
        steps = [
            Step(tuple(-1 if i is None else i for i in step_ids or ()), *(text or "" for text in texts))
            for step_ids, *texts in zip(*parts, strict=True)
        ]
        numbers = np.empty(len(first), dtype=np.int32)
        for i, (facts, query, answer, kind, owner) in enumerate(
            zip(*cells, columns["id"].take(rows).to_pylist(), strict=True)
        ):
            proof = tuple(steps[i * hops : (i + 1) * hops])
            unit = Unit(world_id, facts or "", query or "", answer or "", kind or "", proof, owner)
            numbers[i] = self.units.add(unit)
        return numbers[local]


def _lengths(column: pa.Array | pa.ChunkedArray) -> Ints:
    return pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _codes(column: pa.DictionaryArray) -> Ints:
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _values(lists: pa.Array) -> Ints:
    return lists.flatten().fill_null(-1).to_numpy(zero_copy_only=False)


def _list_codes(lists: pa.Array) -> Ints:
    """Number the distinct lists of integers."""
    lengths = _lengths(lists)
    values = _values(lists)
    starts = np.cumsum(lengths) - lengths
    code = lengths.copy()
    for place in range(int(lengths.max(initial=0))):
        here = np.full(len(lengths), -1, dtype=np.int64)
        there = lengths > place
        here[there] = values[starts[there] + place]
        code, _ = _distinct([code, here])
    return code


def _distinct(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Number the distinct rows of integer columns; also return the first row of each."""
    code: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        packed = code * (high - low + 1) + (column - low)
        code = pa.array(packed).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.empty(int(code.max(initial=-1)) + 1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return code, first
