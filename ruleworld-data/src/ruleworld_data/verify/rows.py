"""Checks of question rows in bulk: text, skeleton, duplicates, overlap of splits."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..spec import RULE_TYPES
from .mentions import TextChecker
from .report import MAX_EXAMPLES, Check, Findings
from .rulebase import RuleBase, Terms
from .scan import Scan, ScannedRows
from .subquestions import SubQuestion

_SLICE = 20_000
"""Rows whose texts are Python strings at one time."""
_NUMBER = re.compile(r"\d+")


class RowChecker:
    """Checks every row of every shard, and afterwards the rows against each other.

    Parameters
    ----------
    scan : Scan
        Reads the shards; its findings are where failures go.
    worlds : mapping
        Rules by world id.
    """

    def __init__(self, scan: Scan, worlds: Mapping[str, RuleBase]) -> None:
        self.findings: Findings = scan.findings
        self.scan, self._worlds = scan, worlds
        self._text = TextChecker(scan.findings, scan.asked)
        self._skeletons = Terms()
        self._skeleton_codes = array("i")
        self._texts: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._ids: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._sources: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def rows(self, rows: ScannedRows) -> None:
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

    def _check_skeletons(self, rows: ScannedRows) -> None:
        """Compare the skeleton of every row to the types of its gold rules."""
        for number in range(len(self._skeleton_codes), len(self.scan.asked)):
            self._skeleton_codes.append(self._skeletons[self._skeleton(self.scan.asked[number])])
        codes = np.array(self._skeleton_codes, dtype=np.int32)[rows.asked]
        offsets = pa.array(np.concatenate([[0], rows.ends]).astype(np.int32))
        names = pa.array(self._skeletons.names, pa.string()).take(pa.array(codes))
        wanted = pc.binary_join(pa.ListArray.from_arrays(offsets, names), " & ")
        bad = pc.not_equal(rows.skeletons.cast(pa.string()), wanted).fill_null(True)
        self.findings["question_labels"].add_rows(
            np.flatnonzero(bad.to_numpy(zero_copy_only=False)),
            lambda row: f"{rows.ids[row]}: skeleton is {rows.skeletons[row]}, its rules make {wanted[row]}",
        )

    def _skeleton(self, asked: SubQuestion) -> str:
        base = self._worlds[asked.world_id]
        found = iter(base.find(asked.rule_ids).tolist())
        steps = [[_type(base, next(found)) for _ in step.rule_ids] for step in asked.steps]
        return ">".join("+".join(step) for step in steps)

    def finish(self) -> None:
        """Check what can only be seen once every shard was read."""
        self._repeats(self._texts, "question", self.findings["duplicates"])
        self._repeats(self._ids, "id", self.findings["question_labels"])
        self.findings["duplicates"].checked += sum(map(len, self._texts.values()))
        asked, splits = self.scan.asked, self.scan.splits
        train = {lesson(asked[number]) for number in splits.get("train", ())}
        for split in [split for split in splits if split != "train"]:
            shared = sorted(number for number in splits[split] if lesson(asked[number]) in train)
            self.findings["overlap"].checked += len(splits[split])
            self.findings["overlap"].add(
                len(shared), [_overlap(split, asked[number]) for number in shared[:MAX_EXAMPLES]]
            )

    def _repeats(self, columns: dict[str, array[int]], what: str, check: Check) -> None:
        """Find values that occur twice, by their 64-bit hashes; mini repeats rows of test, and only those."""
        hashes = {split: np.array(values, dtype=np.int64) for split, values in columns.items()}
        for group in ([split for split in hashes if split != "mini"], ["mini"] if "mini" in hashes else []):
            together = np.concatenate([hashes[split] for split in group] or [np.empty(0, np.int64)])
            order = np.argsort(together, kind="stable")
            same = np.flatnonzero(together[order[1:]] == together[order[:-1]])
            shown = [
                f"{self._place(group, again)} repeats the {what} of {self._place(group, first)}"
                for first, again in order[same[:MAX_EXAMPLES, None] + [0, 1]].tolist()
            ]
            check.add(len(same), shown)
        if "mini" in hashes and "test" in hashes:
            # Where the test shard could not be read there is nothing to compare with.
            there = {name.split("/")[0] for name, _ in self._sources["test"]}
            sizes = [(name.split("/")[0] in there, count) for name, count in self._sources["mini"]]
            comparable = np.repeat(*np.array(sizes).T).astype(bool)
            strange = np.flatnonzero(~np.isin(hashes["mini"], hashes["test"]) & comparable)
            check.add_rows(strange, lambda row: f"{self._place(['mini'], row)}: its {what} is not in test")

    def _place(self, group: list[str], row: int) -> str:
        for split in group:
            for name, count in self._sources[split]:
                if row < count:
                    return f"{name}, row {row}"
                row -= count
        raise IndexError(row)


def _type(base: RuleBase, row: int) -> str:
    return RULE_TYPES[base.type[row]] if row >= 0 else "?"


def _overlap(split: str, asked: SubQuestion) -> str:
    return (
        f"{split}: rules {asked.rule_ids} with answer {asked.answer!r} ({asked.found_in}) also occur in train"
    )


def lesson(asked: SubQuestion) -> tuple[str, tuple[int, ...], tuple[str, ...], str]:
    """Return what a learner could remember of a sub-question, whoever it is about: rules, numbers and answer."""
    return (
        asked.world_id,
        tuple(sorted(asked.rule_ids)),
        tuple(_NUMBER.findall(asked.facts)),
        asked.answer,
    )
