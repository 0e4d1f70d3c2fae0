"""Probes: what somebody answers who has seen train and no rule.

A probe learns from the parts of train's questions and guesses the answer of any part. All know the answer's type and,
of parallel questions, which part asks for which answer. Each operation of a comparison is a type of its own, and the
answer that is a creature counts as its place among those named.

`SHORTCUTS` learn from one sub-task. `MEMORY` has read all of train, and remembers what a part does to the count that it
states, per unit of what happens, since `test` asks about rules that `train` has asked about with other numbers; of a
part that states no count it remembers the answer. Another creature's kind and a synonym ("drop" for "lose") make no
other part.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..spec import UNKNOWN
from ..text.fol import OPERATIONS
from ..world import load_vocabulary, symbol

COLUMNS = ["question", "answers", "answer_types", "facts", "queries"]
"""What is read of a question."""
_STATED = re.compile(r"(Has\((?:\w+, )?\w+), (\d+)\)")
_NUMBER = re.compile(r"\b\d+\b")
_OTHER = re.compile(r"\w+\(y\) & ")
_OPERATOR = {symbol(v.base): name for name, verbs in load_vocabulary().change_verbs.items() for v in verbs}
_SYNONYM = re.compile(rf"\b({'|'.join(_OPERATOR)})_(?=\w+\(x, \d)")


class Part(NamedTuple):
    """One part of a question: where it stands and what it asks for, states and says, and its answer.

    ``numbers`` are those of its facts besides the count that is ``stated``; ``words`` are the whole question's,
    ``symbols`` those of its facts and query.
    """

    place: int
    type: str
    query: str
    stated: int | None
    numbers: tuple[str, ...]
    words: tuple[str, ...]
    symbols: tuple[str, ...]
    answer: str

    @property
    def change(self) -> str:
        """What is done to a stated count, or else the answer."""
        if self.stated is None or not self.answer.isdigit():
            return self.answer
        return f"{int(self.answer) - self.stated:+d}"

    @property
    def lesson(self) -> str:
        """What is to be remembered: the change per unit of a stated count, or else the answer."""
        change = self.change
        return f"{int(change) // self._units:+d} each" if change[:1] in ("+", "-") else change

    def answered(self, lesson: str) -> str:
        """Return the answer that a remembered lesson gives."""
        number, _, each = lesson.partition(" ")
        if number[:1] not in ("+", "-"):
            return lesson
        return str((self.stated or 0) + int(number) * (self._units if each else 1))

    @property
    def _units(self) -> int:
        return int(self.numbers[0]) if self.numbers else 1


Guess = Callable[[Part], str]
Learn = Callable[[Iterable[Part]], Guess]


def parts_of(row: Mapping[str, Any]) -> list[Part]:
    """Return the parts of one question, given with `COLUMNS`."""
    words = tuple(re.findall(r"\w+", row["question"].lower()))
    columns = (row[name] for name in ("answer_types", "queries", "facts", "answers"))
    parts = []
    for place, (kind, query, facts, answer) in enumerate(zip(*columns, strict=True)):
        operation = query.partition("(")[0]
        if operation == "Most":
            answer = re.findall(rf"\b{symbol(answer)}\(x(\d)\)", facts)[0]
        stated, rest = _STATED.search(facts), _STATED.sub(r"\1)", facts)
        numbers, rest = tuple(_NUMBER.findall(rest)), _SYNONYM.sub(lambda m: f"{_OPERATOR[m[1]]}_", rest)
        rest = _OTHER.sub("", _NUMBER.sub("", rest) if stated else rest)
        symbols = tuple(re.findall(r"\w+", f"{rest} {query}"))
        count = int(stated[2]) if stated else None
        kind = operation if operation in OPERATIONS else kind
        parts.append(Part(place, kind, query, count, numbers, words, symbols, answer))
    return parts


def _learner(
    group: Callable[[Part], Hashable],
    lesson: Callable[[Part], str],
    words: Callable[[Part], Iterable[str]] = lambda part: (),
) -> Learn:
    """Give the lesson, of those that train has for the same group, that the words speak for by naive Bayes.

    Without words it is the most frequent one, of equals the first by name. Where train has no such group, or it is
    None, the most frequent answer of the type is given.
    """

    def learn(train: Iterable[Part]) -> Guess:
        columns: dict[str, int] = {}
        lessons: dict[Hashable, dict[str, int]] = defaultdict(dict)
        prior: dict[str, Counter[str]] = defaultdict(Counter)
        times, at, given = Counter[int](), list[int](), list[int]()
        for part in train:
            label = lessons[group(part)].setdefault(lesson(part), len(times))
            times[label] += 1
            prior[part.type][part.answer] += 1
            for word in words(part):
                at.append(label)
                given.append(columns.setdefault(word, len(columns)))
        counts = np.zeros((len(times), len(columns)), dtype=np.float32)
        np.add.at(counts, (at, given), 1)
        likely = np.log((counts + 0.1) / (counts.sum(1, keepdims=True) + 0.1 * len(columns)))
        chance = np.log([times[label] for label in range(len(times))])
        frequent = {kind: min(own, key=lambda answer: (-own[answer], answer)) for kind, own in prior.items()}
        by_name = {name: sorted(own.items()) for name, own in lessons.items() if name is not None}

        def guess(part: Part) -> str:
            known = by_name.get(group(part))
            if known is None:
                return frequent.get(part.type, "")
            rows = [label for _, label in known]
            seen = [columns[word] for word in words(part) if word in columns]
            return part.answered(known[(likely[np.ix_(rows, seen)].sum(1) + chance[rows]).argmax()][0])

        return guess

    return learn


_answer, _lesson, _type, _words = map(attrgetter, ("answer", "lesson", "type", "words"))


def answerable(part: Part) -> str:
    """Return whether there is an answer: what `ANSWERABLE` guesses."""
    return UNKNOWN if part.answer == UNKNOWN else "known"


SHORTCUTS: dict[str, Learn] = {
    "answer prior": _learner(_type, _answer),
    "attribute and type": _learner(lambda part: (part.type, part.query), _answer),
    "number in the question": _learner(
        lambda part: None if part.stated is None else part.numbers, attrgetter("change")
    ),
    "question only": _learner(lambda part: (part.place, part.type), _answer, _words),
}
MEMORY: dict[str, Learn] = {
    "train by heart": _learner(attrgetter("symbols"), _lesson),
    "naive Bayes on clauses": _learner(
        lambda part: (part.type, part.stated is None), _lesson, lambda part: dict.fromkeys(part.symbols)
    ),
}
ANSWERABLE: Learn = _learner(lambda part: (part.place, part.type), answerable, _words)
