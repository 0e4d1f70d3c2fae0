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
from ..world import Ints
from .files import check_shards
from .mentions import plain_words
from .report import Findings, StageProgress
from .rows import lesson
from .rulebase import Terms
from .scan import Scan, ScannedRows
from .subquestions import SubQuestion

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


def leak_report(build_dir: str | Path, progress: StageProgress | None = None) -> LeakReport:
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
    seen = _Seen()
    shards = [shard for shard in shards if shard.config != "rules"]
    for done, shard in enumerate(shards, start=1):
        for rows in seen.scan.shard(shard, "heldout" if shard.split == "heldout" else "first"):
            seen.rows(rows)
        tell("questions", done, len(shards))
    return LeakReport(str(folder), seen.questions(), seen.duplicates(), seen.overlap(), seen.subtasks())


class _Seen:
    """What is kept of the rows read."""

    def __init__(self) -> None:
        self.scan = Scan(Findings())
        self._lessons, self._lesson_codes = Terms(), list[int]()
        self._texts: dict[str, list[Ints]] = defaultdict(list)
        self._instances: dict[str, list[Ints]] = defaultdict(list)
        self._train_uses: dict[str, Counter[int]] = defaultdict(Counter)
        self._test_rows: dict[str, list[ScannedRows]] = defaultdict(list)
        self._visible: dict[str, list[bool]] = defaultdict(list)

    def rows(self, rows: ScannedRows) -> None:
        asked, texts = self.scan.asked, rows.questions.to_pylist()
        self._texts[rows.split].append(np.fromiter(map(hash, texts), np.int64, len(texts)))
        for number in range(len(self._lesson_codes), len(asked)):
            self._lesson_codes.append(self._lessons[repr(lesson(asked[number]))])
        codes = np.array(self._lesson_codes, dtype=np.int64)[rows.asked]
        self._instances[rows.split].append(_row_keys(codes, rows.ends))
        if rows.split == "train":
            uses = np.stack(
                np.unique(rows.asked, return_counts=True), axis=1
            )  # in an order that decides ties
            self._train_uses[rows.config].update(dict(uses.tolist()))
        elif rows.split == "test":
            self._test_rows[rows.config].append(rows)
            for text, numbers in zip(texts[:_READ], rows.lists(), strict=False):
                words = plain_words(text)
                self._visible[rows.config] += [f" {asked[number].answer} " in words for number in numbers]

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
        keys: dict[str, Callable[[SubQuestion], Any]] = {
            "sub_questions": lesson,
            "rules_and_answer": lambda asked: (asked.world_id, tuple(sorted(asked.rule_ids)), asked.answer),
        }
        train = [self.scan.asked[number] for number in self.scan.splits.get("train", ())]
        train_rows = np.concatenate(self._instances.get("train", [np.empty(0, np.uint64)]))
        train_keys = {name: set(map(key, train)) for name, key in keys.items()}
        result = {}
        for split in QUESTION_SPLITS[1:]:
            if split not in self.scan.splits:
                continue
            asked = [self.scan.asked[number] for number in self.scan.splits[split]]
            shares = {"instances": float(np.isin(np.concatenate(self._instances[split]), train_rows).mean())}
            for name, key in keys.items():
                shares[name] = _mean(key(one) in train_keys[name] for one in asked)
            rules = _gold_rules(asked)
            shares["gold_rules"] = len(rules & _gold_rules(train)) / max(1, len(rules))
            result[split] = shares
        return result

    def subtasks(self) -> dict[str, SubtaskLeaks]:
        return {name: self._subtask(name, parts) for name, parts in self._test_rows.items()}

    def _subtask(self, name: str, parts: list[ScannedRows]) -> SubtaskLeaks:
        learnt: dict[str, Counter[str]] = defaultdict(Counter)
        for number, times in self._train_uses[name].items():
            asked = self.scan.asked[number]
            learnt[asked.answer_type][asked.answer] += times
        guess = {kind: answers.most_common(1)[0][0] for kind, answers in learnt.items()}
        skeletons = Counter(skeleton for rows in parts for skeleton in rows.skeletons.to_pylist())
        questions = [[self.scan.asked[n] for n in numbers] for rows in parts for numbers in rows.lists()]
        positions = [asked for question in questions for asked in question]
        answers = Counter(asked.answer for asked in positions)
        total = answers.total()
        top, times = answers.most_common(1)[0] if answers else ("", 0)
        changed = [asked for asked in positions if " = " in asked.steps[-1].fol]
        return SubtaskLeaks(
            questions=len(questions),
            top_answer=top,
            top_share=times / max(1, total),
            entropy_bits=-sum(n / total * log2(n / total) for n in answers.values()),
            majority_exact_match=_mean(
                _mean(guess.get(asked.answer_type) == asked.answer for asked in question)
                for question in questions
            ),
            initial_share=_mean(map(_is_initial, positions)),
            unchanged_share=_mean(map(_is_initial, changed)),
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


def _is_initial(asked: SubQuestion) -> bool:
    """Return whether the answer is an initial count, which the facts state or an entity rule of the steps gives."""
    texts = [asked.facts, *(piece for step in asked.steps for piece in step.fol.split("; "))]
    return any(asked.answer in _HAS.findall(text) for text in texts)


def _gold_rules(asked: list[SubQuestion]) -> set[tuple[str, int]]:
    return {(one.world_id, rule_id) for one in asked for rule_id in one.rule_ids}


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
