"""Shortcuts: what somebody scores on the test split who has seen the train split and no rule.

Each is exact match, the mean over sub-tasks and by sub-task. In no sub-task, at no setting of the dials, may one score
more than `SHORTCUT_BAR` but by chance (`bars`): whoever does has used rules. All of them know the answer's type and, of
parallel questions, which clause asks for which answer. Each operation of a comparison is a type of its own, and the
answer that is a creature counts as its place among those named: choosing blindly is right once in so many, so the bar
is that much higher there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..io.builds import read_manifest, read_rows, world_spec
from ..spec import UNKNOWN, subtasks_of
from ..text.fol import OPERATIONS
from ..world import symbol
from .answers import exact_match

SHORTCUT_BAR = 0.10
"""No shortcut may score more in any sub-task, but by chance."""
ANSWERABLE = "whether there is an answer"
_MOST = 20_000
"""Train questions of a sub-task that are learnt from."""
_COLUMNS = ["question", "answers", "answer_types", "facts", "queries"]
_WORD = re.compile(r"\w+")
_STATED = re.compile(r"Has\((?:\w+, )?\w+, (\d+)\)")
_NUMBER = re.compile(r"\b\d+\b")
_CHUNK = 2_000

Floats = NDArray[np.float32]
Rows = Sequence[dict[str, Any]]
Guesses = list[list[str]]


class AnswerPart(NamedTuple):
    """One answer of a question and what stands beside it: the count that it states, and its other numbers."""

    type: str
    query: str
    stated: int | None
    units: tuple[str, ...]
    answer: str


def shortcuts(build_dir: str | Path) -> dict[str, dict[str, float]]:
    """Score every shortcut on the test split of a build.

    Returns
    -------
    dict
        Shortcut -> ``"all"`` (mean over sub-tasks) and every sub-task -> exact match, 0 to 1; `ANSWERABLE` -> the same
        of the sub-tasks with questions that have no answer, where a half is right blindly.

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no finished build, or a shard cannot be read.
    """
    folder = Path(build_dir)
    scores: dict[str, dict[str, float]] = {name: {} for name in SHORTCUTS}
    for subtask in subtasks_of(world_spec(read_manifest(folder)).dials):
        train, test = (_rows(folder, subtask, split) for split in ("train", "test"))
        for name, guess in SHORTCUTS.items():
            guesses = zip(guess(train, test), test, strict=True)
            right = [exact_match(answers, row["answers"]) for answers, row in guesses]
            scores[name][subtask] = fmean(right or [0.0])
        if any(row["answers"] == [UNKNOWN] for row in test):
            scores.setdefault(ANSWERABLE, {})[subtask] = _answerable(train, test)
    return {name: {"all": fmean(own.values()), **own} for name, own in scores.items()}


def bars(build_dir: str | Path) -> dict[str, float]:
    """Return what a shortcut may score in each sub-task: the bar, a blind choice's score, three standard errors.

    Of a comparison's creatures one is the answer, of the questions that may have no answer a half is ``unknown``.
    """
    folder, limits = Path(build_dir), dict[str, float]()
    for subtask in subtasks_of(world_spec(read_manifest(folder)).dials):
        test = _rows(folder, subtask, "test")
        share = SHORTCUT_BAR + fmean(
            1 / row["queries"][0].count("Has(")
            if row["answer_types"] == ["Most"]
            else row["answers"] == [UNKNOWN]
            for row in test
        )
        limits[subtask] = share + 3 * (share * (1 - share) / len(test)) ** 0.5
    return limits


def _rows(folder: Path, subtask: str, split: str) -> Rows:
    rows = read_rows(folder, subtask, split, _COLUMNS, _MOST)
    for row in rows:
        operation = row["queries"][0].partition("(")[0]
        if operation in OPERATIONS:
            row["answer_types"] = [operation]
        if operation == "Most":
            row["answers"] = re.findall(rf"\b{symbol(row['answers'][0])}\(x(\d)\)", row["facts"][0])
    return rows


def _parts(row: dict[str, Any]) -> list[AnswerPart]:
    counts = [_STATED.search(facts) for facts in row["facts"]]
    stated = [int(count[1]) if count else None for count in counts]
    units = [tuple(_NUMBER.findall(_STATED.sub("", facts))) for facts in row["facts"]]
    return list(map(AnswerPart, row["answer_types"], row["queries"], stated, units, row["answers"]))


def most_frequent(counts: Counter[Any]) -> Any:
    """Return the most frequent value, of equals the first by name."""
    return min(counts, key=lambda value: (-counts[value], value))


def _frequent_by(key: Callable[[AnswerPart], Hashable]) -> Callable[[Rows, Rows], Guesses]:
    """Guess the most frequent answer of train for the same key, or else for the same type."""

    def guess(train: Rows, test: Rows) -> Guesses:
        seen: dict[Hashable, Counter[str]] = defaultdict(Counter)
        for part in (part for row in train for part in _parts(row)):
            for name in {key(part), part.type}:
                seen[name][part.answer] += 1
        best = {name: most_frequent(counts) for name, counts in seen.items()}
        return [[best.get(key(part), best.get(part.type, "")) for part in _parts(row)] for row in test]

    return guess


def _stated_number(train: Rows, test: Rows) -> Guesses:
    """Guess the stated count and its most frequent change for the other numbers; the prior where none is stated."""
    changes: dict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
    for part in (part for row in train for part in _parts(row)):
        if part.stated is not None:
            changes[part.units][int(part.answer) - part.stated] += 1
    change = {units: most_frequent(counts) for units, counts in changes.items()}
    prior = _frequent_by(lambda part: part.type)(train, test)

    def guess(part: AnswerPart, other: str) -> str:
        return other if part.stated is None else str(part.stated + change.get(part.units, 0))

    return [list(map(guess, _parts(row), others)) for row, others in zip(test, prior, strict=True)]


def _question_only(train: Rows, test: Rows) -> Guesses:
    """Guess by naive Bayes on the words of the question, answer by answer."""
    words, _ = _vocabulary(train)
    guesses: Guesses = [[] for _ in test]
    learnt, given = _counts(train, words), _counts(test, words)
    for place in range(max(len(row["answers"]) for row in [*train, *test])):
        for kind in sorted({row["answer_types"][place] for row in test if len(row["answers"]) > place}):
            known, wanted = (
                [i for i, row in enumerate(rows) if row["answer_types"][place : place + 1] == [kind]]
                for rows in (train, test)
            )
            names, labels = np.unique([train[i]["answers"][place] for i in known], return_inverse=True)
            best = ["" for _ in wanted]
            if known:
                by_label = np.zeros((len(names), len(words)), dtype=np.float32)
                np.add.at(by_label, labels, learnt[known])
                likely = np.log((by_label + 0.1) / (by_label.sum(1, keepdims=True) + 0.1 * len(words)))
                prior = np.log(np.bincount(labels) / len(labels))
                best = names[(given[wanted] @ likely.T + prior).argmax(1)].tolist()
            for i, answer in zip(wanted, best, strict=True):
                guesses[i].append(answer)
    return guesses


def _answerable(train: Rows, test: Rows) -> float:
    """Tell by naive Bayes on the words whether a question has an answer; return how often that is right."""
    known, asked = (
        [row | {"answers": [UNKNOWN if row["answers"] == [UNKNOWN] else "known"]} for row in rows]
        for rows in (train, test)
    )
    guesses = _question_only(known, asked)
    return fmean(exact_match(guess, row["answers"]) for guess, row in zip(guesses, asked, strict=True))


def _nearest_question(train: Rows, test: Rows) -> Guesses:
    """Copy the answers of the train question whose words are most alike (cosine of TF-IDF)."""
    words, weights = _vocabulary(train)
    given = _unit(_counts(test, words) * weights)
    best, at = np.full(len(test), -1.0, dtype=np.float32), np.zeros(len(test), dtype=np.int64)
    for start in range(0, len(train), _CHUNK):
        alike = given @ _unit(_counts(train[start : start + _CHUNK], words) * weights).T
        closer = alike.max(1) > best
        at[closer], best[closer] = start + alike.argmax(1)[closer], alike.max(1)[closer]
    return [train[i]["answers"] for i in at.tolist()]


def _vocabulary(rows: Rows) -> tuple[dict[str, int], Floats]:
    """Return a column per word, and every word's inverse document frequency."""
    uses = Counter(word for row in rows for word in set(_WORD.findall(row["question"].lower())))
    words = {word: i for i, word in enumerate(sorted(uses))}
    return words, np.log(len(rows) / np.array([uses[word] for word in words]) + 1).astype(np.float32)


def _counts(rows: Rows, words: dict[str, int]) -> Floats:
    """Return how often each word occurs in each question, shape (questions, words)."""
    counts = np.zeros((len(rows), len(words)), dtype=np.float32)
    for i, row in enumerate(rows):
        for word in _WORD.findall(row["question"].lower()):
            if (column := words.get(word)) is not None:
                counts[i, column] += 1
    return counts


def _unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


SHORTCUTS: dict[str, Callable[[Rows, Rows], Guesses]] = {
    "answer prior": _frequent_by(lambda part: part.type),
    "attribute and type": _frequent_by(lambda part: (part.type, part.query)),
    "number in the question": _stated_number,
    "question only": _question_only,
    "nearest training question": _nearest_question,
}
"""What each does with the train rows and the test rows: a list of guesses per test question."""
