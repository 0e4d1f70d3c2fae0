"""Read question shards and reduce millions of rows to their distinct sub-questions.

Parallel questions combine a pool of sub-questions, so eleven million of them are a few hundred thousand distinct ones.
Arrow and numpy find these (on the integers of dictionary-encoded columns) and check what can be checked by row; the
logic then runs once per distinct sub-question (`answers`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..io.shards import Shard
from ..spec import MINI_FOLD_SIZE, MINI_FOLDS
from ..world import Ints
from .report import Findings

_SCOPE = ("facts", "queries", "answers", "answer_types")
_TEXTS = ("nl", "fol", "state")
_ENCODED = [f"{name}.list.element" for name in _SCOPE]
_ENCODED += [*(f"steps.list.element.{name}" for name in _TEXTS), "skeleton"]


class GivenStep(NamedTuple):
    """One proof step as shipped."""

    rule_ids: tuple[int, ...]
    nl: str
    fol: str
    state: str


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One distinct sub-question: a scope, what is given as its answer, and why.

    ``found_in`` is the id of the first question that has it, and no part of what it is.
    """

    world_id: str
    facts: str
    query: str
    answer: str
    answer_type: str
    steps: tuple[GivenStep, ...]
    found_in: str = field(compare=False)

    @property
    def rule_ids(self) -> tuple[int, ...]:
        """Gold rule ids in step order."""
        return tuple(rule_id for step in self.steps for rule_id in step.rule_ids)


@dataclass
class ScannedRows:
    """What is kept of one shard's well-formed rows.

    ``asked`` has the numbers of the sub-questions of all rows, flat; ``ends`` tells where each row's end.
    """

    shard: Shard
    ids: pa.Array
    questions: pa.Array
    skeletons: pa.Array
    asked: Ints
    ends: Ints

    def lists(self) -> Iterator[list[int]]:
        """Yield the sub-question numbers of each row."""
        asked, start = self.asked.tolist(), 0
        for end in self.ends.tolist():
            yield asked[start:end]
            start = end


class Scan:
    """Distinct sub-questions of everything scanned so far, numbered by first occurrence.

    ``splits`` has the numbers of each split; ``rows`` and ``parts`` count questions and sub-questions.
    """

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder, self.findings = folder, findings
        self.asked: list[SubQuestion] = []
        self._numbers: dict[SubQuestion, int] = {}
        self.splits: dict[str, set[int]] = defaultdict(set)
        self.rows = self.parts = 0

    def shard(self, shard: Shard, world_id: str) -> Iterator[ScannedRows]:
        """Scan one shard, one row group at a time."""
        hops = int(shard.config.rsplit("_", 1)[1]) if shard.config.startswith("multi_hop") else 1
        with pq.ParquetFile(self.folder / shard.path, read_dictionary=_ENCODED) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                self.rows += len(table)
                table = self._well_formed(table, shard, hops)
                columns = {name: table.column(name).combine_chunks() for name in table.column_names}
                self._check_labels(columns, shard, world_id, hops)
                ends = np.cumsum(_lengths(columns["queries"]))
                asked = self._number(columns, world_id, hops, ends)
                self.parts += len(asked)
                self.splits[shard.split].update(np.unique(asked).tolist())
                yield ScannedRows(shard, columns["id"], columns["question"], columns["skeleton"], asked, ends)

    def _well_formed(self, table: pa.Table, shard: Shard, hops: int) -> pa.Table:
        """Drop (and report) rows whose lists do not line up."""
        check = self.findings["question_shape"]
        check.checked += len(table)
        scopes = _lengths(table.column("queries"))
        parallel = shard.config.startswith("multi_rule")
        good = (scopes >= 2) & (scopes <= shard.dials.parts) if parallel else scopes == 1
        good &= _lengths(table.column("steps")) == (hops if hops > 1 else scopes)
        for name in _SCOPE:
            good &= _lengths(table.column(name)) == scopes
        for name in (*_SCOPE, "question", "steps", "gold_rule_ids"):
            good &= pc.is_valid(table.column(name)).to_numpy()
        ids = table.column("id")
        check.fail_rows(
            np.flatnonzero(~good),
            lambda row: f"{shard.path}: {ids[row]}: facts, queries, answers, types and steps do not line up",
        )
        table = table.filter(pa.array(good)) if not good.all() else table
        steps = table.column("steps").combine_chunks()
        gold = table.column("gold_rule_ids").combine_chunks()
        in_steps = pc.struct_field(steps.flatten(), "rule_ids")
        ends = np.concatenate([[0], np.cumsum(_lengths(steps))])
        sizes: Ints = np.diff(np.concatenate([[0], np.cumsum(_lengths(in_steps))])[ends])
        same = _lengths(gold) == sizes
        if same.all():
            same[np.repeat(np.arange(len(table)), sizes)[_values(gold) != _values(in_steps)]] = False
        ids = table.column("id")
        check.fail_rows(
            np.flatnonzero(~same),
            lambda row: f"{shard.path}: {ids[row]}: gold_rule_ids are not the rule ids of its steps in order",
        )
        return table

    def _check_labels(self, columns: dict[str, pa.Array], shard: Shard, world_id: str, hops: int) -> None:
        check = self.findings["question_labels"]
        check.checked += len(columns["id"])
        rules = _lengths(columns["gold_rule_ids"])
        wrong = {
            "subtask": pc.not_equal(columns["subtask"], shard.config),
            "world_id": pc.not_equal(columns["world_id"], world_id),
            "n_rules": pc.not_equal(columns["n_rules"], pa.array(rules)),
            "n_hops": pc.not_equal(columns["n_hops"], hops),
        }
        if hops == 1:
            width = 1 if shard.config == "single_rule" else int(shard.config.rsplit("_", 1)[1])
            wrong["gold_rule_ids"] = pa.array(rules != width)
        folds = columns["fold"].fill_null(-1).to_numpy(zero_copy_only=False)
        if shard.split == "mini":
            sizes = np.bincount(folds[(folds >= 0) & (folds < MINI_FOLDS)], minlength=MINI_FOLDS).tolist()
            if sizes != [MINI_FOLD_SIZE] * MINI_FOLDS:
                check.fail(f"{shard.path}: folds have {sizes} questions, expected {MINI_FOLD_SIZE} each")
        else:
            wrong["fold"] = pa.array(folds != 0)
        for name, bad in wrong.items():
            rows = np.flatnonzero(bad.fill_null(True).to_numpy(zero_copy_only=False))
            check.fail_rows(rows, partial(_label, shard, columns, name))

    def _number(self, columns: dict[str, pa.Array], world_id: str, hops: int, ends: Ints) -> Ints:
        """Number the sub-questions of every row."""
        steps = columns["steps"].flatten()
        scope = [columns[name].flatten() for name in _SCOPE]
        rule_ids = pc.struct_field(steps, "rule_ids")
        texts = [pc.struct_field(steps, name) for name in _TEXTS]
        codes = [_codes(column) for column in scope]
        for column in (_as_text(rule_ids).dictionary_encode(), *texts):
            codes += list(_codes(column).reshape(-1, hops).T)
        local, first = _distinct(codes)
        found_in = columns["id"].take(pa.array(np.searchsorted(ends, first, side="right"))).to_pylist()
        cells = [column.take(pa.array(first)).to_pylist() for column in scope]
        spots = pa.array((first[:, None] * hops + np.arange(hops)).ravel())
        given = [
            GivenStep(tuple(-1 if i is None else i for i in ids or ()), *(text or "" for text in step_texts))
            for ids, *step_texts in zip(
                *(column.take(spots).to_pylist() for column in (rule_ids, *texts)), strict=True
            )
        ]
        numbers = []
        for i, (owner, *asked_texts) in enumerate(zip(found_in, *cells, strict=True)):
            proof = tuple(given[i * hops : (i + 1) * hops])
            facts, query, answer, answer_type = (text or "" for text in asked_texts)
            asked = SubQuestion(world_id, facts, query, answer, answer_type, proof, owner)
            numbers.append(self._numbers.setdefault(asked, len(self.asked)))
            if numbers[-1] == len(self.asked):
                self.asked.append(asked)
        return np.array(numbers, dtype=np.int32)[local]


def _label(shard: Shard, columns: dict[str, pa.Array], name: str, row: int) -> str:
    return f"{shard.path}: {columns['id'][row]}: {name} is {columns[name][row]}"


def _lengths(column: pa.Array | pa.ChunkedArray) -> Ints:
    return pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _codes(column: pa.DictionaryArray) -> Ints:
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _values(lists: pa.Array) -> Ints:
    return lists.flatten().fill_null(-1).to_numpy(zero_copy_only=False)


def _as_text(lists: pa.Array) -> pa.Array:
    """Write lists of integers as text."""
    offsets = np.concatenate([[0], np.cumsum(_lengths(lists))]).astype(np.int32)
    digits = lists.flatten().fill_null(-1).cast(pa.string())
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), digits), ",")


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
