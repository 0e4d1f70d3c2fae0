"""Checks of question rows in bulk: text, skeleton, duplicates, overlap of splits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..world import Ints
from .mentions import question_problems
from .rulebase import ALL_TYPES, RuleBase, Terms
from .scan import Scan, ScannedRows, SubQuestion

_SLICE = 20_000
"""Rows whose texts are Python strings at one time."""
_NUMBER = re.compile(r"\d+")


class RowChecker:
    """Checks every row that a scan reads, and afterwards the rows against each other; ``worlds`` by world id."""

    def __init__(self, scan: Scan, worlds: Mapping[str, RuleBase]) -> None:
        self.findings, self.scan, self._worlds = scan.findings, scan, worlds
        self._skeletons, self._skeleton_codes = Terms(), list[int]()
        self._hashes: dict[str, list[Ints]] = defaultdict(list)  # of ids and questions, by split
        self._sources: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def rows(self, rows: ScannedRows) -> None:
        """Check a part of a shard."""
        split, check, lists = rows.shard.split, self.findings["question_text"], rows.lists()
        self._sources[split].append((rows.shard.path, len(rows.ids)))
        check.checked += len(rows.ids)
        for start in range(0, len(rows.ids), _SLICE):
            ids, texts = (part.slice(start, _SLICE).to_pylist() for part in (rows.ids, rows.questions))
            self._hashes[split].append(np.array([[*map(hash, ids)], [*map(hash, texts)]], dtype=np.int64))
            for row_id, text, numbers in zip(ids, texts, lists, strict=False):
                asked = [self.scan.asked[number] for number in numbers]
                for problem in question_problems(text, [(one.facts, one.query) for one in asked]):
                    check.fail(f"{row_id}: {problem}")
        self._check_skeletons(rows)

    def _check_skeletons(self, rows: ScannedRows) -> None:
        """Compare the skeleton of every row to the types of its gold rules."""
        for asked in self.scan.asked[len(self._skeleton_codes) :]:
            self._skeleton_codes.append(self._skeletons[self._skeleton(asked)])
        codes = np.array(self._skeleton_codes, dtype=np.int32)[rows.asked]
        offsets = pa.array(np.concatenate([[0], rows.ends]).astype(np.int32))
        names = pa.array(self._skeletons.names, pa.string()).take(pa.array(codes))
        wanted = pc.binary_join(pa.ListArray.from_arrays(offsets, names), " & ")
        bad = pc.not_equal(rows.skeletons.cast(pa.string()), wanted).fill_null(True)
        self.findings["question_labels"].fail_rows(
            np.flatnonzero(bad.to_numpy(zero_copy_only=False)),
            lambda row: f"{rows.ids[row]}: skeleton is {rows.skeletons[row]}, its rules make {wanted[row]}",
        )

    def _skeleton(self, asked: SubQuestion) -> str:
        base = self._worlds[asked.world_id]
        found = base.find(asked.rule_ids)
        types = iter([ALL_TYPES[base.type[row]] if row >= 0 else "?" for row in found.tolist()])
        return ">".join("+".join(next(types) for _ in step.rule_ids) for step in asked.steps)

    def finish(self) -> None:
        """Check what can only be seen once every shard was read."""
        hashes = {split: np.concatenate(parts, axis=1) for split, parts in self._hashes.items()}
        for column, what, check in ((0, "id", "question_labels"), (1, "question", "duplicates")):
            self._repeats({split: both[column] for split, both in hashes.items()}, what, check)
        self.findings["duplicates"].checked += sum(both.shape[1] for both in hashes.values())
        asked, splits, overlap = self.scan.asked, self.scan.splits, self.findings["overlap"]
        train = {lesson(asked[number]) for number in splits.get("train", ())}
        for split in [split for split in splits if split != "train"]:
            overlap.checked += len(splits[split])
            overlap.fail_rows(
                sorted(number for number in splits[split] if lesson(asked[number]) in train),
                lambda number, split=split: (
                    f"{split}: rules {asked[number].rule_ids} with answer {asked[number].answer!r} "
                    f"({asked[number].found_in}) also occur in train"
                ),
            )

    def _repeats(self, hashes: dict[str, Ints], what: str, check: str) -> None:
        """Find values that occur twice, by their 64-bit hashes; mini repeats rows of test, and only those."""
        for group in ([split for split in hashes if split != "mini"], ["mini"]):
            together = np.concatenate([hashes.get(split, np.empty(0, np.int64)) for split in [*group, ""]])
            order = np.argsort(together, kind="stable")
            same = np.flatnonzero(together[order[1:]] == together[order[:-1]])
            self.findings[check].fail_rows(
                np.stack([order[same], order[same + 1]], axis=1),
                lambda pair, group=group: (
                    f"{self._place(group, pair[1])} repeats the {what} of {self._place(group, pair[0])}"
                ),
            )
        if "mini" in hashes and "test" in hashes:
            # Where the test shard could not be read there is nothing to compare with.
            there = {path.split("/")[0] for path, _ in self._sources["test"]}
            known = [[path.split("/")[0] in there] * count for path, count in self._sources["mini"]]
            strange = ~np.isin(hashes["mini"], hashes["test"]) & np.concatenate(known)
            self.findings[check].fail_rows(
                np.flatnonzero(strange),
                lambda row: f"{self._place(['mini'], row)}: its {what} is not in test",
            )

    def _place(self, group: list[str], row: int) -> str:
        for path, count in (source for split in group for source in self._sources[split]):
            if row < count:
                return f"{path}, row {row}"
            row -= count
        raise IndexError(row)


def lesson(asked: SubQuestion) -> tuple[str, tuple[int, ...], tuple[str, ...], str]:
    """Return what a learner could remember of a sub-question, whoever it is about: rules, numbers and answer."""
    numbers = tuple(_NUMBER.findall(asked.facts))
    return asked.world_id, tuple(sorted(asked.rule_ids)), numbers, asked.answer
