"""Ways to a reward without the chain that a question asks for: what a configuration can give away.

A policy sees what a model sees, and what it could have learnt by heart: the frequencies of answers in other
instances. It knows the type of each answer. The tests of this package hold many more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["View", "count_and_change", "frequent_answers"]

_COUNT = re.compile(r"If A is an? ([a-z ]+), it has (\d+) ([a-z ]+)\.")
_CHANGE = re.compile(r"If .*, A will ([a-z]+) (\d+) ([a-z ]+)\.")


class View(NamedTuple):
    """What a policy sees of an instance.

    Attributes
    ----------
    question : str
    rules : sequence of str
        The pool, whether it is in the prompt or would have to be looked up.
    types : sequence of str
        Of each answer: count, environment, state, creature.
    frequent : dict
        Type -> its most frequent answer in other instances.
    change : int
        The most frequent difference between an answer and a count that the question states.
    """

    question: str
    rules: Sequence[str]
    types: Sequence[str]
    frequent: dict[str, str]
    change: int


def frequent_answers(view: View) -> list[str]:
    """Guess the most frequent answer of each type."""
    return [view.frequent.get(kind, "12") for kind in view.types]


def count_and_change(view: View) -> list[str]:
    """Answer by two look-ups and no chain: who has how many, and a rule that changes the same thing."""
    counts = [match for rule in view.rules if (match := _COUNT.fullmatch(rule))]
    changes = [match for rule in view.rules if (match := _CHANGE.fullmatch(rule))]
    answers, parts = frequent_answers(view), re.split(r"[;,] (?:and )?", view.question.lower())
    for place, (kind, part) in enumerate(zip(view.types, parts[-len(view.types) :], strict=False)):
        has = [match for match in counts if match[1] in part and match[3].split()[0] in part.split()]
        if kind != "count" or not has:
            continue
        start, thing = int(has[0][2]), has[0][3]
        same = [m for m in changes if m[3].split()[0] == thing.split()[0] and m[3][:-2] in thing]
        change = view.change
        if same:
            change = int(same[0][2]) * (-1 if same[0][1] in ("lose", "drop") else 1)
        answers[place] = str(start + change)
    return answers
