"""Memory: what somebody scores who has learnt train's clauses by heart and is shown no rule.

`test` asks about rules that `train` has asked about with other numbers, so what is worth remembering is not the answer
but the change: what a clause does to the count that it states, per unit of what happens. Of a clause that states no
count it is the answer. Another creature's kind and a synonym ("drop" for "lose") make no other clause. Both probes have
read every sub-task of train.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..io.builds import read_manifest, read_rows, world_spec
from ..spec import HEADLINE_SPLITS, splits_of, subtasks_of
from ..world import load_vocabulary, symbol
from .answers import exact_match
from .shortcuts import most_frequent

_MOST = 25_000
"""Train questions of a sub-task that are learnt: all of scale paper."""
_COLUMNS = ("facts", "queries", "answer_types", "answers")
_STATED = re.compile(r"(Has\((?:\w+, )?\w+), (\d+)\)")
_OTHER = re.compile(r"\w+\(y\) & ")
_UNITS = re.compile(r"\(x, (\d+)\)")


class Clause(NamedTuple):
    """One part of a question: the symbols of its facts and its query, and its numbers and answer."""

    symbols: tuple[str, ...]
    type: str
    stated: int | None
    units: int
    answer: str

    @property
    def lesson(self) -> str:
        """What is to be remembered: the change per unit of a stated count, or else the answer."""
        if self.stated is None or not self.answer.isdigit():
            return self.answer
        return f"{(int(self.answer) - self.stated) // self.units:+d}"

    def answered(self, lesson: str) -> str:
        """Return the answer that a remembered lesson gives."""
        return str((self.stated or 0) + int(lesson) * self.units) if lesson[0] in "+-" else lesson


Guess = Callable[[Clause], str]


def memory(build_dir: str | Path) -> dict[str, dict[str, dict[str, float]]]:
    """Score what memory of the train split knows of the others.

    Returns
    -------
    dict
        Probe -> split -> ``"all"`` (mean over sub-tasks) and every sub-task -> exact match, 0 to 1.

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no finished build, or a shard cannot be read.
    """
    folder = Path(build_dir)
    spec = world_spec(read_manifest(folder))
    subtasks, splits = subtasks_of(spec.dials), [s for s in HEADLINE_SPLITS if s in splits_of(spec.version)]

    def questions(subtask: str, split: str) -> list[list[Clause]]:
        return [_clauses(row) for row in read_rows(folder, subtask, split, [*_COLUMNS], _MOST)]

    train = [clause for name in subtasks for question in questions(name, "train") for clause in question]
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for probe, learn in PROBES.items():
        guess = learn(train)
        scores[probe] = {}
        for split in splits:
            right = {
                name: fmean(
                    exact_match(
                        [guess(clause) for clause in question], [clause.answer for clause in question]
                    )
                    for question in questions(name, split)
                )
                for name in subtasks
            }
            scores[probe][split] = {"all": fmean(right.values()), **right}
    return scores


def _clauses(row: dict[str, Any]) -> list[Clause]:
    clauses = []
    for facts, query, kind, answer in zip(*(row[name] for name in _COLUMNS), strict=True):
        facts = _SYNONYM.sub(lambda match: f"{_OPERATOR[match[1]]}_", _OTHER.sub("", facts))
        stated, units = _STATED.search(facts) if query.startswith("Has(") else None, None
        if stated:
            facts = _STATED.sub(r"\1)", facts)
            units = _UNITS.search(facts)
            facts = _UNITS.sub("(x)", facts)
        symbols = tuple(re.findall(r"\w+", f"{facts} {query}"))
        count = int(stated[2]) if stated else None
        clauses.append(Clause(symbols, kind, count, int(units[1]) if units else 1, answer))
    return clauses


_OPERATOR = {symbol(v.base): name for name, verbs in load_vocabulary().change_verbs.items() for v in verbs}
_SYNONYM = re.compile(rf"\b({'|'.join(_OPERATOR)})_(?=\w+\(x, \d)")


def _by_heart(train: Iterable[Clause]) -> Guess:
    """Remember the lesson of every clause; of one that is new, say train's most frequent answer of the type."""
    seen: dict[Any, Counter[str]] = defaultdict(Counter)
    prior: dict[str, Counter[str]] = defaultdict(Counter)
    for clause in train:
        seen[clause.symbols][clause.lesson] += 1
        prior[clause.type][clause.answer] += 1
    lesson = {key: most_frequent(counts) for key, counts in seen.items()}
    likely = {kind: most_frequent(counts) for kind, counts in prior.items()}

    def guess(clause: Clause) -> str:
        if clause.symbols in lesson:
            return clause.answered(lesson[clause.symbols])
        return likely.get(clause.type, "")

    return guess


def _naive_bayes(train: Iterable[Clause]) -> Guess:
    """Learn by naive Bayes which lesson a clause's symbols speak for."""
    words: dict[str, int] = {}
    lessons: dict[tuple[str, bool], dict[str, int]] = defaultdict(dict)
    number, labels, columns = 0, list[int](), list[int]()
    times = Counter[int]()
    for clause in train:
        known = lessons[clause.type, clause.stated is None]
        if clause.lesson not in known:
            known[clause.lesson], number = number, number + 1
        label = known[clause.lesson]
        times[label] += 1
        for word in set(clause.symbols):
            labels.append(label)
            columns.append(words.setdefault(word, len(words)))
    counts = np.zeros((number, len(words)), dtype=np.float32)
    np.add.at(counts, (labels, columns), 1)
    likely = np.log((counts + 0.1) / (counts.sum(1, keepdims=True) + 0.1 * len(words)))
    prior = np.log([times[label] for label in range(number)])

    def guess(clause: Clause) -> str:
        known = lessons[clause.type, clause.stated is None]
        if not known:
            return ""
        rows, given = list(known.values()), [words[word] for word in set(clause.symbols) if word in words]
        best = (likely[np.ix_(rows, given)].sum(1) + prior[rows]).argmax()
        return clause.answered(list(known)[best])

    return guess


PROBES: dict[str, Callable[[Iterable[Clause]], Guess]] = {
    "train by heart": _by_heart,
    "naive Bayes on clauses": _naive_bayes,
}
"""What each learns from train's clauses: a guess for any clause."""
