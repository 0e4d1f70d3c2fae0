"""Distinct sub-questions: what they are, and a compact list of them."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, overload

_MARSHAL = 2  # the last version whose bytes depend on the value alone


class Step(NamedTuple):
    """One shipped proof step."""

    rule_ids: tuple[int, ...]
    nl: str
    fol: str
    state: str


class Unit(NamedTuple):
    """One distinct sub-question: a scope, what is said to be its answer, and why.

    ``found_in`` is the id of the first question that has it.
    """

    world_id: str
    facts: str
    query: str
    answer: str
    answer_type: str
    steps: tuple[Step, ...]
    found_in: str

    @property
    def rule_ids(self) -> tuple[int, ...]:
        """Gold rule ids in step order."""
        return tuple(rule_id for step in self.steps for rule_id in step.rule_ids)


class UnitList(Sequence[Unit]):
    """A list of distinct units, kept as bytes: a third of the memory, and cheap to send to another process."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, unit: Unit) -> int:
        """Return the number of a unit, a new one if it is new; who has it first does not matter."""
        digest = blake2b(_pack(unit._replace(found_in="")), digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._packed)
            self._packed.append(_pack(unit))
        return number

    def forget_digests(self) -> None:
        """Free what only `add` needs."""
        self._numbers.clear()

    def packed(self, number: int) -> bytes:
        """Return a unit as bytes for `unpack`."""
        return self._packed[number]

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, number: int) -> Unit: ...
    @overload
    def __getitem__(self, number: slice) -> list[Unit]: ...
    def __getitem__(self, number: int | slice) -> Unit | list[Unit]:
        if isinstance(number, slice):
            return [unpack(packed) for packed in self._packed[number]]
        return unpack(self._packed[number])

    def __iter__(self) -> Iterator[Unit]:
        return map(unpack, self._packed)


def _pack(unit: Unit) -> bytes:
    plain: tuple[Any, ...] = (*unit[:5], tuple(tuple(step) for step in unit.steps), unit.found_in)
    return marshal.dumps(plain, _MARSHAL)


def unpack(packed: bytes) -> Unit:
    """Read a unit from the bytes of a `UnitList`."""
    world_id, facts, query, answer, answer_type, steps, found_in = marshal.loads(packed)
    return Unit(world_id, facts, query, answer, answer_type, tuple(Step(*step) for step in steps), found_in)
