"""Checks of question rows in bulk: text, skeleton, duplicates, overlap of splits."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..spec import RULE_TYPES
from ..text.rulebase import Terms
from .report import Check, Findings
from .rules import World
from .scan import Rows
from .text import TextChecker
from .unit import Unit, UnitList

_SLICE = 20_000
"""Rows whose texts are Python strings at one time."""
_NUMBER = re.compile(r"\d+")


class RowChecker:
    """Checks every row of every shard, and afterwards the rows against each other.

    Parameters
    ----------
    findings : Findings
        Where failures go.
    units : UnitList
        The scan's distinct sub-questions; grows while shards are read.
    worlds : dict
        Worlds by id.
    """

    def __init__(self, findings: Findings, units: UnitList, worlds: dict[str, World]) -> None:
        self.findings, self.units, self._worlds = findings, units, worlds
        self._text = TextChecker(findings, units)
        self._skeletons = Terms()
        self._skeleton_codes = array("i")
        self._texts: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._ids: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._sources: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def rows(self, rows: Rows) -> None:
        """Check a part of a shard."""
        self._sources[rows.split].append((rows.name, len(rows.ids)))
        lists = rows.lists()
        for start in range(0, len(rows.ids), _SLICE):
            ids = rows.ids.slice(start, _SLICE).to_pylist()
            texts = rows.questions.slice(start, _SLICE).to_pylist()
            self._ids[rows.split].extend(map(hash, ids))
            self._texts[rows.split].extend(map(hash, texts))
            self._text.rows(ids, texts, lists)
        self._check_skeletons(rows)

    def _check_skeletons(self, rows: Rows) -> None:
        """Compare the skeleton of every row to the types of its gold rules."""
        for unit in self.units[len(self._skeleton_codes) :]:
            self._skeleton_codes.append(self._skeletons[self._skeleton(unit)])
        codes = np.array(self._skeleton_codes, dtype=np.int32)[rows.units]
        offsets = pa.array(np.concatenate([[0], rows.ends]).astype(np.int32))
        names = pa.array(self._skeletons.names, pa.string()).take(pa.array(codes))
        wanted = pc.binary_join(pa.ListArray.from_arrays(offsets, names), " & ")
        bad = pc.not_equal(rows.skeletons.cast(pa.string()), wanted).fill_null(True)
        self.findings["question_labels"].add_rows(
            np.flatnonzero(bad.to_numpy(zero_copy_only=False)),
            lambda row: f"{rows.ids[row]}: skeleton is {rows.skeletons[row]}, its rules make {wanted[row]}",
        )

    def _skeleton(self, unit: Unit) -> str:
        types = iter(self._worlds[unit.world_id].types(np.array(unit.rule_ids, dtype=np.int64)).tolist())
        steps = [[(*RULE_TYPES, "?")[next(types)] for _ in step.rule_ids] for step in unit.steps]
        return ">".join("+".join(step) for step in steps)

    def finish(self, splits: dict[str, set[int]]) -> None:
        """Check what can only be seen once every shard was read."""
        self._repeats(self._texts, "question", self.findings["duplicates"])
        self._repeats(self._ids, "id", self.findings["question_labels"])
        self.findings["duplicates"].checked += sum(map(len, self._texts.values()))
        train = {lesson(self.units[number]) for number in splits.get("train", ())}
        check = self.findings["overlap"]
        for split, numbers in splits.items():
            if split != "train":
                check.checked += len(numbers)
                shared = sorted(number for number in numbers if lesson(self.units[number]) in train)
                check.add(len(shared), [self._overlapping(split, number) for number in shared[:5]])

    def _overlapping(self, split: str, number: int) -> str:
        unit = self.units[number]
        return f"{split}: rules {unit.rule_ids} with answer {unit.answer!r} ({unit.found_in}) also occur in train"

    def _repeats(self, columns: dict[str, array[int]], what: str, check: Check) -> None:
        """Find values that occur twice, by their 64-bit hashes; mini repeats rows of test, and only those."""
        hashes = {split: np.array(values, dtype=np.int64) for split, values in columns.items()}
        for group in ([split for split in hashes if split != "mini"], ["mini"] if "mini" in hashes else []):
            together = np.concatenate([hashes[split] for split in group] or [np.empty(0, np.int64)])
            order = np.argsort(together, kind="stable")
            same = np.flatnonzero(together[order[1:]] == together[order[:-1]])
            pairs = zip(order[same + 1].tolist()[:5], order[same].tolist(), strict=False)
            shown = [
                f"{self._place(group, a)} repeats the {what} of {self._place(group, b)}" for a, b in pairs
            ]
            check.add(len(same), shown)
        if "mini" in hashes and "test" in hashes:
            # Where the test shard could not be read there is nothing to compare with.
            there = {name.split("/")[0] for name, _ in self._sources["test"]}
            comparable = [
                flag
                for name, count in self._sources["mini"]
                for flag in [name.split("/")[0] in there] * count
            ]
            strange = np.flatnonzero(~np.isin(hashes["mini"], hashes["test"]) & np.array(comparable))
            check.add_rows(strange, lambda row: f"{self._place(['mini'], row)}: its {what} is not in test")

    def _place(self, group: list[str], row: int) -> str:
        for split in group:
            for name, count in self._sources[split]:
                if row < count:
                    return f"{name}, row {row}"
                row -= count
        raise IndexError(row)


def lesson(unit: Unit) -> tuple[str, tuple[int, ...], tuple[str, ...], str]:
    """Return what a learner could remember of a sub-question, whoever it is about: rules, numbers and answer."""
    return unit.world_id, tuple(sorted(unit.rule_ids)), tuple(_NUMBER.findall(unit.facts)), unit.answer
