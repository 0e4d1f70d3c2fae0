"""Tables of questions that are one chain of rules each, and what they share with parallel questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..io.schema import QUESTION_SCHEMA
from ..world import Key, Stream, World
from .proofs import Proof, prove
from .skeletons import SINGLE, Skeleton, multi_hop
from .units import draw_units


@dataclass(frozen=True)
class Origin:
    """What a table of questions is drawn for; names its streams."""

    world: World
    split: str
    subtask: str

    @property
    def key(self) -> tuple[Key, ...]:
        """The name of the drawing."""
        return (self.world.world_id, len(self.world), self.split, self.subtask)

    @property
    def size(self) -> int:
        """The number in the sub-task's name: rules of a parallel question, hops of a chain; 1 for single_rule."""
        return 1 if self.subtask == "single_rule" else int(self.subtask.rsplit("_", 1)[1])

    def part(self, name: str) -> Origin:
        """Return the origin of one part of the table."""
        return replace(self, subtask=f"{self.subtask} {name}")

    def stream(self, *name: Key) -> Stream:
        """Return the stream of one step of the drawing."""
        return Stream("questions", *self.key, *name)

    def proofs(self, shares: dict[Skeleton, float], count: int, *, clauses: bool) -> list[Proof]:
        """Draw, word and shuffle units of several skeletons."""
        proofs: list[Proof] = []
        for units in draw_units(self.world, self.split, shares, count, self.key):
            proofs += prove(self.world, units, self.stream("wording", units.skeleton.name), clauses=clauses)
        order = self.stream("order", *[skeleton.name for skeleton in shares]).permutation(count)
        return [proofs[i] for i in order.tolist()]

    def identity(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns that name rows ``[start, stop)``."""
        index = pc.utf8_lpad(pa.array(np.arange(start, stop)).cast(pa.string()), 7, "0")
        constant = pa.array(np.zeros(stop - start, dtype=np.int32))
        return {
            "id": pc.binary_join_element_wise(f"{self.subtask}-{self.split}-", index, ""),
            "subtask": pa.DictionaryArray.from_arrays(constant, [self.subtask]),
            "world_id": pa.DictionaryArray.from_arrays(constant, [self.world.world_id]),
        }


def chain_table(origin: Origin, count: int) -> pa.Table:
    """Draw and word ``count`` questions of one chain each: single_rule or multi_hop."""
    hops = origin.size
    shares = multi_hop(hops, origin.world.dials) if hops > 1 else SINGLE
    proofs = origin.proofs(shares, count, clauses=False)
    gold = [[rule for step in proof.steps for rule in step.rule_ids] for proof in proofs]
    columns: dict[str, Any] = {
        **origin.identity(0, count),
        "question": [proof.question for proof in proofs],
        "answers": [[proof.answer] for proof in proofs],
        "answer_types": [[proof.answer_type] for proof in proofs],
        "steps": [proof.steps for proof in proofs],
        "gold_rule_ids": gold,
        "facts": [[proof.facts] for proof in proofs],
        "queries": [[proof.query] for proof in proofs],
        "skeleton": [proof.skeleton for proof in proofs],
        "template_id": [proof.template_id for proof in proofs],
        "n_rules": [len(rules) for rules in gold],
        "n_hops": [hops] * count,
        "fold": [0] * count,
    }
    arrays = {
        field.name: values if isinstance(values, pa.Array) else pa.array(values, field.type)
        for field in QUESTION_SCHEMA
        for values in [columns[field.name]]
    }
    return pa.table(arrays)
