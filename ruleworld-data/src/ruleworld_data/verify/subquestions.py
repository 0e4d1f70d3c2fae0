"""Distinct sub-questions: what they are, and a compact list of them."""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..text import Fact, Query

_MARSHAL = 2  # the last version whose bytes depend on the value alone


class GivenStep(NamedTuple):
    """One proof step as shipped."""

    rule_ids: tuple[int, ...]
    nl: str
    fol: str
    state: str


class SubQuestion(NamedTuple):
    """One distinct sub-question: a scope, what is given as its answer, and why.

    ``found_in`` is the id of the first question that has it.
    """

    world_id: str
    facts: str
    query: str
    answer: str
    answer_type: str
    steps: tuple[GivenStep, ...]
    found_in: str

    @property
    def rule_ids(self) -> tuple[int, ...]:
        """Gold rule ids in step order."""
        return tuple(rule_id for step in self.steps for rule_id in step.rule_ids)


class Parsed(NamedTuple):
    """A sub-question whose facts and query could be read."""

    asked: SubQuestion
    facts: tuple[Fact, ...]
    query: Query


class SubQuestions:
    """A list of distinct sub-questions, kept as bytes: a third of the memory, and cheap to send to another process."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._packed: list[bytes] = []
        self._found_in: list[str] = []

    def add(self, asked: SubQuestion) -> int:
        """Return the number of a sub-question, a new one if it is new; who has it first does not matter."""
        plain: Any = (*asked[:5], tuple(tuple(step) for step in asked.steps))
        packed = marshal.dumps(plain, _MARSHAL)
        number = self._numbers.setdefault(packed, len(self._packed))
        if number == len(self._packed):
            self._packed.append(packed)
            self._found_in.append(asked.found_in)
        return number

    def part(self, numbers: list[int]) -> SubQuestions:
        """Return some of them, as a list to read from."""
        part = SubQuestions()
        part._packed = [self._packed[number] for number in numbers]
        part._found_in = [self._found_in[number] for number in numbers]
        return part

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, number: int) -> SubQuestion:
        world_id, facts, query, answer, answer_type, steps = marshal.loads(self._packed[number])
        given = tuple(GivenStep(*step) for step in steps)
        return SubQuestion(world_id, facts, query, answer, answer_type, given, self._found_in[number])

    def __iter__(self) -> Iterator[SubQuestion]:
        return map(self.__getitem__, range(len(self)))
