"""How much could be answered without the rules: leaks between splits, and shortcuts in the questions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from ..spec import QUESTION_SPLITS
from ..text.rulebase import Ints, Terms
from .report import Findings
from .rows import lesson
from .scan import Rows, Scan
from .shards import Shard, check_shards
from .text import plain_words
from .unit import Unit

_READ = 20_000
"""Questions per shard whose text is read for visible answers; the others are like them."""
_HAS = re.compile(r"Has\(\w, \w+, (\d+)\)")


@dataclass
class SubtaskLeaks:
    """Shortcuts of one sub-task; shares are of the test split's answers unless the name says otherwise.

    Attributes
    ----------
    top_answer, top_share : str, float
        The most frequent answer, and its share.
    entropy_bits : float
        Of the distribution of answers.
    majority_exact_match : float
        Score of always giving the train split's most frequent answer of the type asked for (mean over questions of
        the share of positions that are right).
    initial_share, unchanged_share : float
        Answers that equal the initial count: all of them, and those after a change.
    visible_share : float
        Answers that occur, as words, in their question.
    skeletons : dict
        Questions by reasoning skeleton.
    """

    questions: int = 0
    top_answer: str = ""
    top_share: float = 0.0
    entropy_bits: float = 0.0
    majority_exact_match: float = 0.0
    initial_share: float = 0.0
    unchanged_share: float = 0.0
    visible_share: float = 0.0
    skeletons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LeakReport:
    """Leaks between splits and shortcuts by sub-task.

    Attributes
    ----------
    questions : dict
        Questions by split.
    duplicates : dict
        Repeated question texts by split, and between splits as ``"train/test"`` (mini is a part of test).
    overlap : dict
        By split, how much of it occurs in train: ``instances`` (all sub-questions alike), ``sub_questions`` (rules,
        stated numbers and answer alike), ``rules_and_answer`` (whatever the numbers), ``gold_rules``.
    subtasks : dict of SubtaskLeaks
        By sub-task.
    """

    folder: str
    questions: dict[str, int]
    duplicates: dict[str, int]
    overlap: dict[str, dict[str, float]]
    subtasks: dict[str, SubtaskLeaks]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return asdict(self)


def leak_report(build_dir: str | Path, progress: Callable[[str, int, int], None] | None = None) -> LeakReport:
    """Measure leaks and shortcuts of a build.

    Parameters
    ----------
    build_dir : path
        A folder made by ``ruleworld build``.
    progress : callable, optional
        Called with a stage, the number of its parts done, and their total.

    Returns
    -------
    LeakReport

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If it is damaged; ``ruleworld verify`` tells where.
    """
    from ..io import read_manifest

    folder, tell = Path(build_dir), progress or (lambda stage, done, total: None)
    findings = Findings()
    shards = check_shards(folder, read_manifest(folder), findings, tell)
    if damage := [example for check in findings.values() for example in check.examples]:
        raise ValueError(
            f"{folder} is damaged: {damage[0]}. For all findings type: ruleworld verify {folder}"
        )
    gathering = _Gathering()
    shards = [shard for shard in shards if shard.config != "rules"]
    for done, shard in enumerate(shards, start=1):
        gathering.shard(shard)
        tell("questions", done, len(shards))
    return LeakReport(
        str(folder), gathering.questions(), gathering.duplicates(), gathering.overlap(), gathering.subtasks()
    )


class _Gathering:
    """What is kept of every shard."""

    def __init__(self) -> None:
        self.scan = Scan(Findings())
        self._lessons, self._lesson_codes = Terms(), list[int]()
        self._texts: dict[str, list[Ints]] = defaultdict(list)
        self._instances: dict[str, list[Ints]] = defaultdict(list)
        self._uses: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._test_rows: dict[str, list[Rows]] = defaultdict(list)
        self._visible: dict[str, list[bool]] = defaultdict(list)

    def shard(self, shard: Shard) -> None:
        for rows in self.scan.shard(shard, "heldout" if shard.split == "heldout" else "first"):
            texts = rows.questions.to_pylist()
            self._texts[rows.split].append(np.fromiter(map(hash, texts), np.int64, len(texts)))
            for unit in self.scan.units[len(self._lesson_codes) :]:
                self._lesson_codes.append(self._lessons[repr(lesson(unit))])
            codes = np.array(self._lesson_codes, dtype=np.int64)[rows.units]
            self._instances[rows.split].append(_row_keys(codes, rows.ends))
            numbers, counts = np.unique(rows.units, return_counts=True)
            uses = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
            self._uses[rows.config, rows.split].update(uses)
            if rows.split == "test":
                self._test_rows[rows.config].append(rows)
                for text, units in zip(texts[:_READ], rows.lists(), strict=False):
                    words = plain_words(text)
                    answers = [self.scan.units[unit].answer for unit in units]
                    self._visible[rows.config] += [f" {answer} " in words for answer in answers]

    def questions(self) -> dict[str, int]:
        return {split: sum(map(len, self._texts[split])) for split in QUESTION_SPLITS if split in self._texts}

    def duplicates(self) -> dict[str, int]:
        texts = {split: np.concatenate(parts) for split, parts in self._texts.items()}
        found = {split: int((np.diff(np.sort(values)) == 0).sum()) for split, values in texts.items()}
        for one, other in combinations(texts, 2):
            if {one, other} != {"test", "mini"}:
                found[f"{one}/{other}"] = int(np.isin(texts[other], texts[one]).sum())
        return found

    def overlap(self) -> dict[str, dict[str, float]]:
        units, splits = self.scan.units, self.scan.splits
        keys: dict[str, Callable[[Unit], Any]] = {
            "sub_questions": lesson,
            "rules_and_answer": lambda unit: (unit.world_id, tuple(sorted(unit.rule_ids)), unit.answer),
        }
        train_rows = np.concatenate(self._instances.get("train", [np.empty(0, np.uint64)]))
        train_keys = {name: {key(units[n]) for n in splits.get("train", ())} for name, key in keys.items()}
        train_rules = {(units[n].world_id, i) for n in splits.get("train", ()) for i in units[n].rule_ids}
        result = {}
        for split in QUESTION_SPLITS:
            if split == "train" or split not in splits:
                continue
            numbers = splits[split]
            shares = {"instances": float(np.isin(np.concatenate(self._instances[split]), train_rows).mean())}
            for name, key in keys.items():
                shares[name] = _mean(key(units[n]) in train_keys[name] for n in numbers)
            rules = {(units[n].world_id, rule_id) for n in numbers for rule_id in units[n].rule_ids}
            shares["gold_rules"] = len(rules & train_rules) / max(1, len(rules))
            result[split] = shares
        return result

    def subtasks(self) -> dict[str, SubtaskLeaks]:
        return {name: self._subtask(name, rows) for name, rows in self._test_rows.items()}

    def _subtask(self, name: str, parts: list[Rows]) -> SubtaskLeaks:
        units = self.scan.units
        learnt: dict[str, Counter[str]] = defaultdict(Counter)
        for number, times in self._uses[name, "train"].items():
            learnt[units[number].answer_type][units[number].answer] += times
        guess = {kind: answers.most_common(1)[0][0] for kind, answers in learnt.items()}
        answers: Counter[str] = Counter()
        skeletons: Counter[str] = Counter()
        scores: list[float] = []
        initial: list[bool] = []
        unchanged: list[bool] = []
        for rows in parts:
            skeletons.update(rows.skeletons.to_pylist())
            for numbers in rows.lists():
                asked = [units[number] for number in numbers]
                answers.update(unit.answer for unit in asked)
                equal = [unit.answer in _initial_counts(unit) for unit in asked]
                initial += equal
                unchanged += [
                    same for same, unit in zip(equal, asked, strict=True) if " = " in unit.steps[-1].fol
                ]
                scores.append(_mean(guess.get(unit.answer_type) == unit.answer for unit in asked))
        total = answers.total()
        top, times = answers.most_common(1)[0] if answers else ("", 0)
        entropy = -sum(n / total * log2(n / total) for n in answers.values())
        return SubtaskLeaks(
            questions=len(scores),
            top_answer=top,
            top_share=times / max(1, total),
            entropy_bits=entropy,
            majority_exact_match=_mean(scores),
            initial_share=_mean(initial),
            unchanged_share=_mean(unchanged),
            visible_share=_mean(self._visible[name]),
            skeletons=dict(skeletons.most_common()),
        )


def render_leaks(report: LeakReport) -> str:
    """Render a leak report for a terminal."""
    lines = [report.folder, "", "questions that repeat a text, within a split or between two:"]
    lines += [f"  {name:20} {count:,}" for name, count in report.duplicates.items()]
    lines += ["", "share of a split that occurs in train:"]
    for split, shares in report.overlap.items():
        lines.append(f"  {split:12}" + "  ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    lines += [
        "",
        "test answers: most frequent one, entropy, score of guessing it, initial count, visible in the text",
    ]
    for name, leak in report.subtasks.items():
        lines.append(
            f"  {name:14}{leak.top_answer!r:>12} {leak.top_share:6.1%} {leak.entropy_bits:5.2f} bits"
            f" {leak.majority_exact_match:6.1%} {leak.initial_share:6.1%} {leak.visible_share:6.1%}"
            f"   {len(leak.skeletons)} skeletons"
        )
    return "\n".join(lines)


def _initial_counts(unit: Unit) -> set[str]:
    """Initial counts that the facts state or an entity rule of the steps gives."""
    texts = [unit.facts, *(piece for step in unit.steps for piece in step.fol.split("; "))]
    return {count for text in texts for count in _HAS.findall(text)}


def _row_keys(codes: Ints, ends: Ints) -> Ints:
    """Hash each row's set of codes to 64 bits."""
    widths = np.diff(ends, prepend=0)
    matrix = np.full((len(ends), int(widths.max(initial=1))), -1, dtype=np.int64)
    matrix[np.arange(matrix.shape[1]) < widths[:, None]] = codes
    matrix.sort(axis=1)
    key = np.zeros(len(ends), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in matrix.T.astype(np.uint64):
            key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    return key


def _mean(values: Any) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers) if numbers else 0.0
