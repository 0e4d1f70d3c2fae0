"""How much could be answered without the rules: leaks between splits, and shortcuts in the questions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import chain, combinations
from math import log2
from pathlib import Path
from typing import Any

from ..io.builds import read_manifest, world_spec
from ..scoring.memory import memory
from ..scoring.shortcuts import SHORTCUT_BAR, bar, shortcuts
from ..spec import UNKNOWN, splits_of
from .files import check_shards
from .mentions import plain_words
from .report import Findings, StageProgress, printable
from .scan import QuestionRow, Scan, SubQuestion

_HAS = re.compile(r"Has\(\w+, \w+, (\d+)\)")


def leak_report(build_dir: str | Path, progress: StageProgress | None = None) -> dict[str, Any]:
    """Measure leaks between splits and shortcuts in the questions of a build.

    Parameters
    ----------
    build_dir : path
        A folder made by ``ruleworld build``.
    progress : callable, optional
        Called with a stage, the number of its parts done, and their total.

    Returns
    -------
    dict
        Ready for JSON:

        - ``questions``: how many, by split;
        - ``duplicates``: repeated question texts by split, and between splits as ``"train/test"`` (mini is a part of
          test);
        - ``overlap``: by split, how much of it occurs in train: ``instances`` (all sub-questions alike),
          ``sub_questions`` (rules, stated numbers and answer alike), ``rules_and_answer`` (whatever the numbers),
          ``gold_rules``;
        - ``subtasks``: by sub-task, of the test split, ``questions``; ``top_answer`` and ``top_share``, the most
          frequent answer; ``entropy_bits`` of the answers; ``majority_exact_match``, the score of always giving train's
          most frequent answer of the type asked for; ``initial_share`` and ``unchanged_share``, the answers that equal
          the initial count, all and those after a change; ``visible_share``, the answers that occur, as words, in
          their question; and ``skeletons``, questions by reasoning skeleton;
        - ``shortcuts``: what partial knowledge scores on test, see `ruleworld_data.scoring.shortcuts.shortcuts`;
        - ``above_bar``: of those, shortcut -> sub-task -> score where that is above `scoring.shortcuts.bar`;
        - ``memory``: what memory of train scores by split, see `ruleworld_data.scoring.memory.memory`.

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
    splits = splits_of(world_spec(read_manifest(folder)).version)
    scan, lessons = Scan(folder, findings), list[int]()
    texts: dict[str, list[int]] = {split: [] for split in splits}
    instances: dict[str, list[int]] = {split: [] for split in splits}
    uses: dict[str, Counter[int]] = defaultdict(Counter)
    test: dict[str, list[QuestionRow]] = defaultdict(list)
    shards = [shard for shard in shards if shard.config != "rules"]
    for done, shard in enumerate(shards, start=1):
        for row in scan.read(shard, "heldout" if shard.split == "heldout" else "first"):
            lessons += [hash(known.lesson) for known in scan.subquestions[len(lessons) :]]
            texts[shard.split].append(hash(row.question))
            instances[shard.split].append(hash(tuple(sorted(lessons[n] for n in row.numbers))))
            if shard.split == "test":
                test[shard.config].append(row)
            elif shard.split == "train":
                uses[shard.config].update(row.numbers)
        tell("questions", done, len(shards))
    train = {name: {key for known in scan.of("train") for key in keys(known)} for name, keys in _KEYS.items()}
    train["instances"] = set(instances["train"])
    overlap = {}
    for split in splits[1:]:
        parts = {
            name: [key for known in scan.of(split) for key in keys(known)] for name, keys in _KEYS.items()
        }
        parts["gold_rules"] = list(set(parts["gold_rules"]))  # of different rules, not of uses
        parts = {"instances": instances[split]} | parts
        overlap[split] = {name: _mean(key in train[name] for key in keys) for name, keys in parts.items()}
    scores = shortcuts(folder)
    bars = {name: bar(len(rows), _blind(scan, rows)) for name, rows in test.items()}
    above = {
        shortcut: {name: score for name, score in own.items() if score > bars.get(name, 1)}
        for shortcut, own in scores.items()
    }
    return {
        "folder": str(folder),
        "questions": {split: len(own) for split, own in texts.items()},
        "duplicates": _duplicates(texts),
        "overlap": overlap,
        "subtasks": {name: _subtask(scan, rows, uses[name]) for name, rows in test.items()},
        "shortcuts": scores,
        "above_bar": {shortcut: own for shortcut, own in above.items() if own},
        "memory": memory(folder),
    }


_KEYS: dict[str, Callable[[SubQuestion], list[Any]]] = {
    "sub_questions": lambda known: [known.lesson],
    "rules_and_answer": lambda known: [(known.world_id, tuple(sorted(known.rule_ids)), known.answer)],
    "gold_rules": lambda known: [(known.world_id, rule_id) for rule_id in known.rule_ids],
}


def _duplicates(texts: dict[str, list[int]]) -> dict[str, int]:
    known = {split: set(own) for split, own in texts.items()}
    counts = {split: len(own) - len(known[split]) for split, own in texts.items()}
    for one, other in combinations(texts, 2):
        if {one, other} != {"test", "mini"}:
            counts[f"{one}/{other}"] = sum(text in known[one] for text in texts[other])
    return counts


def _blind(scan: Scan, rows: list[QuestionRow]) -> float:
    """Return what a blind choice scores: of a comparison's creatures one is the answer, and ``unknown`` of a half."""
    first = [scan.subquestions[row.numbers[0]] for row in rows]
    return _mean(
        1 / known.query.count("Has(") if known.query.startswith("Most(") else known.answer == UNKNOWN
        for known in first
    )


def _subtask(scan: Scan, rows: list[QuestionRow], uses: Counter[int]) -> dict[str, Any]:
    learnt: dict[str, Counter[str]] = defaultdict(Counter)
    for number, times in sorted(uses.items()):  # the order decides ties
        learnt[scan.subquestions[number].answer_type][scan.subquestions[number].answer] += times
    guess = {kind: answers.most_common(1)[0][0] for kind, answers in learnt.items()}
    questions = [[scan.subquestions[n] for n in row.numbers] for row in rows]
    parts = list(chain.from_iterable(questions))
    answers = Counter(part.answer for part in parts)
    top, top_times = answers.most_common(1)[0]
    shares = [n / len(parts) for n in answers.values()]
    right = [[guess.get(part.answer_type) == part.answer for part in question] for question in questions]
    visible = [
        f" {part.answer} " in words
        for row, question in zip(rows, questions, strict=True)
        for words in [plain_words(row.question)]
        for part in question
    ]
    return {
        "questions": len(questions),
        "top_answer": top,
        "top_share": top_times / len(parts),
        "entropy_bits": -sum(share * log2(share) for share in shares),
        "majority_exact_match": _mean(map(_mean, right)),
        "initial_share": _mean(map(_is_initial, parts)),
        "unchanged_share": _mean(_is_initial(part) for part in parts if " = " in part.steps[-1].fol),
        "visible_share": _mean(visible),
        "skeletons": dict(Counter(str(row.skeleton) for row in rows).most_common()),
    }


def render_leaks(report: dict[str, Any]) -> str:
    """Render a leak report for a terminal."""
    lines = [report["folder"], "", "questions that repeat a text, within a split or between two:"]
    lines += [f"  {name:20} {count:,}" for name, count in report["duplicates"].items()]
    lines += ["", "share of a split that occurs in train:"]
    for split, shares in report["overlap"].items():
        lines.append(f"  {split:12}" + "  ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    lines += [
        "",
        "test answers: most frequent one, entropy, score of guessing it, initial count, visible in the text",
    ]
    for name, leak in report["subtasks"].items():
        lines.append(
            f"  {name:14}{leak['top_answer']!r:>12} {leak['top_share']:6.1%} {leak['entropy_bits']:5.2f} bits"
            f" {leak['majority_exact_match']:6.1%} {leak['initial_share']:6.1%} {leak['visible_share']:6.1%}"
            f"   {len(leak['skeletons'])} skeletons"
        )
    lines += [
        "",
        f"what partial knowledge scores on test, mean over sub-tasks and highest (bar {SHORTCUT_BAR:.0%} and chance):",
    ]
    for name, scores in report["shortcuts"].items():
        above = ", ".join(f"{task} {score:.1%}" for task, score in report["above_bar"].get(name, {}).items())
        lines.append(
            f"  {name:26}{scores['all']:6.1%} {max(scores.values()):6.1%}  "
            + (f"above the bar: {above}" if above else "passes in every sub-task")
        )
    lines += ["", "what memory of train scores without a rule, mean over sub-tasks and each:"]
    lines += [
        f"  {split:12}{probe:26}" + " ".join(f"{score:6.1%}" for score in scores.values())
        for probe, splits in report["memory"].items()
        for split, scores in splits.items()
    ]
    return "\n".join(map(printable, lines))


def _is_initial(known: SubQuestion) -> bool:
    """Return whether the answer is an initial count, which the facts state or an entity rule of the steps gives."""
    texts = [known.facts, *(piece for step in known.steps for piece in step.fol.split("; "))]
    return any(known.answer in _HAS.findall(text) for text in texts)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
