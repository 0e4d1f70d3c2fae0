"""How much could be answered without the rules: leaks between splits, and shortcuts in the questions."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from ..io.builds import read_manifest
from ..scoring import SHORTCUT_BAR, shortcuts
from ..spec import QUESTION_SPLITS
from ..world import Ints
from .files import check_shards
from .mentions import plain_words
from .report import Findings, StageProgress, printable
from .rows import lesson
from .scan import Scan, ScannedRows, SubQuestion

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
    shortcuts : dict
        What partial knowledge scores on test, see `ruleworld_data.scoring.shortcuts`.
    """

    folder: str
    questions: dict[str, int]
    duplicates: dict[str, int]
    overlap: dict[str, dict[str, float]]
    subtasks: dict[str, SubtaskLeaks]
    shortcuts: dict[str, dict[str, float]]

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
    folder, tell, findings = Path(build_dir), progress or (lambda stage, done, total: None), Findings()
    shards = check_shards(folder, read_manifest(folder), findings, tell)
    if damage := [example for check in findings.values() for example in check.examples]:
        raise ValueError(
            f"{folder} is damaged: {damage[0]}. For all findings type: ruleworld verify {folder}"
        )
    seen = _Seen(Scan(folder, findings))
    shards = [shard for shard in shards if shard.config != "rules"]
    for done, shard in enumerate(shards, start=1):
        for rows in seen.scan.shard(shard, "heldout" if shard.split == "heldout" else "first"):
            seen.rows(rows)
        tell("questions", done, len(shards))
    splits = [split for split in QUESTION_SPLITS if split in seen.texts]
    return LeakReport(
        str(folder),
        {split: len(seen.texts[split]) for split in splits},
        _duplicates({split: np.array(seen.texts[split], dtype=np.int64) for split in splits}),
        {split: seen.overlap(split) for split in splits if split != "train"},
        {name: seen.subtask(name) for name in seen.test_rows},
        shortcuts(folder),
    )


class _Seen:
    """What is kept of the rows read: hashes of texts and of their lessons by split, uses of train, rows of test."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.texts: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self.test_rows: dict[str, list[ScannedRows]] = defaultdict(list)
        self._instances: dict[str, list[int]] = defaultdict(list)
        self._lessons: list[int] = []
        self._train_uses: dict[str, Counter[int]] = defaultdict(Counter)
        self._visible: dict[str, list[bool]] = defaultdict(list)

    def rows(self, rows: ScannedRows) -> None:
        asked, texts = self.scan.asked, rows.questions.to_pylist()
        config, split = rows.shard.config, rows.shard.split
        self.texts[split].extend(map(hash, texts))
        self._lessons += [hash(lesson(one)) for one in asked[len(self._lessons) :]]
        for numbers in rows.lists():
            self._instances[split].append(hash(tuple(sorted(self._lessons[number] for number in numbers))))
        if split == "train":
            uses = np.stack(
                np.unique(rows.asked, return_counts=True), axis=1
            )  # in an order that decides ties
            self._train_uses[config].update(dict(uses.tolist()))
        elif split == "test":
            self.test_rows[config].append(rows)
            for text, numbers in zip(texts[:_READ], rows.lists(), strict=False):
                words = plain_words(text)
                self._visible[config] += [f" {asked[number].answer} " in words for number in numbers]

    @cached_property
    def _train(self) -> dict[str, set[Any]]:
        """What the sub-questions of train have that those of other splits might have too."""
        asked = [self.scan.asked[number] for number in self.scan.splits.get("train", ())]
        return {name: {part for one in asked for part in parts(one)} for name, parts in _SHARED.items()}

    def overlap(self, split: str) -> dict[str, float]:
        asked = [self.scan.asked[number] for number in self.scan.splits[split]]
        instances = set(self._instances["train"])
        shares = {"instances": _mean(row in instances for row in self._instances[split])}
        for name, parts in _SHARED.items():
            found = [part for one in asked for part in parts(one)]
            if name == "gold_rules":  # of different rules, not of uses
                found = list(set(found))
            shares[name] = _mean(part in self._train[name] for part in found)
        return shares

    def subtask(self, name: str) -> SubtaskLeaks:
        parts, learnt = self.test_rows[name], defaultdict[str, Counter[str]](Counter)
        for number, times in self._train_uses[name].items():
            asked = self.scan.asked[number]
            learnt[asked.answer_type][asked.answer] += times
        guess = {kind: answers.most_common(1)[0][0] for kind, answers in learnt.items()}
        questions = [[self.scan.asked[n] for n in numbers] for rows in parts for numbers in rows.lists()]
        positions = [asked for question in questions for asked in question]
        answers = Counter(asked.answer for asked in positions)
        total = answers.total()
        top, times = answers.most_common(1)[0] if answers else ("", 0)
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
            unchanged_share=_mean(_is_initial(asked) for asked in positions if " = " in asked.steps[-1].fol),
            visible_share=_mean(self._visible[name]),
            skeletons=dict(Counter(s for rows in parts for s in rows.skeletons.to_pylist()).most_common()),
        )


_SHARED: dict[str, Callable[[SubQuestion], list[Any]]] = {
    "sub_questions": lambda asked: [lesson(asked)],
    "rules_and_answer": lambda asked: [(asked.world_id, tuple(sorted(asked.rule_ids)), asked.answer)],
    "gold_rules": lambda asked: [(asked.world_id, rule_id) for rule_id in asked.rule_ids],
}


def _duplicates(texts: dict[str, Ints]) -> dict[str, int]:
    found = {split: int((np.diff(np.sort(values)) == 0).sum()) for split, values in texts.items()}
    for one, other in combinations(texts, 2):
        if {one, other} != {"test", "mini"}:
            found[f"{one}/{other}"] = int(np.isin(texts[other], texts[one]).sum())
    return found


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
    lines += [
        "",
        f"what partial knowledge scores on test, mean over sub-tasks (bar {SHORTCUT_BAR:.0%}) and highest:",
    ]
    for name, scores in report.shortcuts.items():
        lines.append(f"  {name:26}{scores['all']:6.1%} {max(scores.values()):6.1%}")
    return "\n".join(map(printable, lines))


def _is_initial(asked: SubQuestion) -> bool:
    """Return whether the answer is an initial count, which the facts state or an entity rule of the steps gives."""
    texts = [asked.facts, *(piece for step in asked.steps for piece in step.fol.split("; "))]
    return any(asked.answer in _HAS.findall(text) for text in texts)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
