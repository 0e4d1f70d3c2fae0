r"""Gaming policies: ways to a reward that answer no question. The certificate holds each to the floor.

Every policy sees what a model sees, and what it could have learnt by heart: the frequencies of answers in other
instances. It is told the type of each answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from ..questions import boxed

__all__ = ["POLICIES", "QUERIES", "Policy", "View"]

_NUMBER = re.compile(r"\d+")
_NUMBERS = [str(number) for number in range(61)]
_COUNT = re.compile(r"If A is an? ([a-z ]+), it has (\d+) ([a-z ]+)\.")
_CHANGE = re.compile(r"If .*, A will ([a-z]+) (\d+) ([a-z ]+)\.")
_NAMED = re.compile(r"(?:will be|will enter|enters?) (?:the )?([a-z ]+?)\.|(?:in|on|at) the ([a-z ]+?),")


class View(NamedTuple):
    """What a policy sees of an instance.

    Attributes
    ----------
    prompt, question : str
    rules : sequence of str
        The pool, whether it is in the prompt or would have to be looked up.
    types : sequence of str
        Of each answer: count, environment, state.
    frequent : dict
        Type -> its answers in other instances, the most frequent first.
    change : int
        The most frequent difference between an answer and a count that the question states.
    """

    prompt: str
    question: str
    rules: Sequence[str]
    types: Sequence[str]
    frequent: dict[str, list[str]]
    change: int

    def each(self, rank: int = 0) -> list[str]:
        """Return a frequent answer for each that is asked for; where few are known, ranks begin again."""
        known = [self.frequent.get(kind) or ["12"] for kind in self.types]
        return [answers[rank % len(answers)] for answers in known]

    def numbers(self) -> list[str]:
        """Return the numbers of the question."""
        return _NUMBER.findall(self.question) or ["12"]


class Kind(StrEnum):
    """What a policy may earn beyond the form: nothing, what luck brings, what rules without the chain do."""

    NOTHING = "nothing"
    LUCK = "luck"
    RULES = "rules"


NOTHING, LUCK, RULES = Kind


class Policy(NamedTuple):
    """A way to write an output."""

    name: str
    kind: Kind
    write: Callable[[View], object]


def _guess(view: View) -> str:
    return boxed(view.each())


def _all(view: View) -> list[str]:
    return [*_NUMBERS, *view.frequent.get("environment", []), *view.frequent.get("state", [])]


def _named(view: View) -> list[str]:
    return [first or second for rule in view.rules for first, second in _NAMED.findall(rule)] or ["bridge"]


def _about_what_is_asked(view: View, pick: int) -> str:
    """Answer each part by one rule of those that share most words with it, as if it were the only one."""
    parts, found = re.split(r"[;,] (?:and )?", view.question.lower()), []
    for kind, part in zip(view.types, (parts * len(view.types))[-len(view.types) :], strict=True):
        words = set(re.findall(r"[a-z]+", part))
        near = sorted(view.rules, key=lambda rule: -len(words & set(re.findall(r"[a-z]+", rule.lower()))))
        rule = near[min(pick, len(near) - 1)]
        found.append((_NUMBER.findall(rule) or view.each())[-1] if kind == "count" else _named(view)[0])
    return boxed(found)


def _one_change(view: View, pick: int, caused: bool = False) -> str:
    """Answer by two look-ups and no chain: who has how many, and a rule that changes the same thing.

    ``caused``: prefer one whose state some rule leads to.
    """
    counts = [match for rule in view.rules if (match := _COUNT.fullmatch(rule))]
    changes = [match for rule in view.rules if (match := _CHANGE.fullmatch(rule))]
    found, parts = view.each(), re.split(r"[;,] (?:and )?", view.question.lower())
    for place, (kind, part) in enumerate(zip(view.types, parts[-len(view.types) :], strict=False)):
        has = [match for match in counts if match[1] in part and match[3].split()[0] in part.split()]
        if kind != "count" or not has:
            continue
        start, thing = int(has[0][2]), has[0][3]
        same = [
            match for match in changes if match[3].split()[0] == thing.split()[0] and match[3][:-2] in thing
        ]
        if caused:
            led_to = {rule.rpartition(" will be ")[2] for rule in view.rules}
            same = [match for match in same if f"{match[0][8:].partition(',')[0]}." in led_to] or same
        change = same[pick % len(same)] if same else None
        sign = -1 if change and change[1] in ("lose", "drop") else 1
        found[place] = str(start + (sign * int(change[2]) if change else view.change))
    return boxed(found)


def _steps(line: Callable[[View, int], str], last: Callable[[View], str] = _guess) -> Callable[[View], str]:
    return lambda view: "\n".join(f"[Step {i}] {line(view, i)}" for i in range(1, 9)) + "\n" + last(view)


POLICIES = (
    Policy("empty", NOTHING, lambda view: ""),
    Policy("every candidate in one box", NOTHING, lambda view: boxed(_all(view))),
    Policy("every number with or", NOTHING, lambda view: boxed([" or ".join(_NUMBERS)] * len(view.types))),
    Policy("whole pool and a guess", LUCK, lambda view: "\n".join(view.rules) + _guess(view)),
    Policy("most frequent answer", LUCK, _guess),
    Policy("number of the question", LUCK, lambda view: boxed((view.numbers() * 8)[: len(view.types)])),
    Policy("number of the question, changed", LUCK, lambda view: _changed(view)),
    Policy("first rule that shares words", RULES, lambda view: _about_what_is_asked(view, 0)),
    Policy("second rule that shares words", RULES, lambda view: _about_what_is_asked(view, 1)),
    Policy("count and a change, no chain", RULES, lambda view: _one_change(view, 0)),
    Policy("count and another change, no chain", RULES, lambda view: _one_change(view, 1)),
    Policy("count and a change with a cause", RULES, lambda view: _one_change(view, 0, caused=True)),
    Policy("steps that quote the pool in turn", LUCK, _steps(lambda view, i: view.rules[i % len(view.rules)])),
)  # fmt: skip
"""What a configuration can give away, and one of each other kind; the tests of this package hold many more."""


def _changed(view: View) -> str:
    return boxed([str(int(n) + view.change) for n in (view.numbers() * 8)[: len(view.types)]])


QUERIES: dict[str, Callable[[View], list[object]]] = {
    "nothing": lambda view: [""],
    "no text": lambda view: [None, 3, b"\xff", ["horn"], "\ud800"],
    "without end": lambda view: [view.question] * 200,
}
"""Ways to game the search tool: queries, after which the most frequent answer is given."""
