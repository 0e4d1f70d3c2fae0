"""Tables of questions that are one chain of rules each, and what they share with parallel questions.

Every drawn unit becomes a scene, and every scene a question, or a clause of one, with its proof.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..io.schema import QUESTION_SCHEMA
from ..spec import VERSION, VERSIONS, size_of
from ..world import Key, RuleBlock, Stream, World
from ..world.forms import QUESTION_NAMES, draw_forms
from .scene import Hop, Scene, Step
from .skeletons import Skeleton, shares_of, unknown
from .units import Units, draw_units
from .wording import templates


class Proof(NamedTuple):
    """What one unit contributes to a question: its scope in FOL, its words, its answer, and one step a hop.

    ``who`` is what its words call the subject.
    """

    skeleton: str
    facts: str
    query: str
    question: str
    template_id: str
    answer: str
    answer_type: str
    steps: list[Step]
    who: str


@dataclass(frozen=True)
class Origin:
    """What a table of questions is drawn for; names its streams."""

    world: World
    split: str
    subtask: str
    version: str = VERSION

    @property
    def key(self) -> tuple[Key, ...]:
        """The name of the drawing."""
        return (self.world.structure_id, len(self.world), self.split, self.subtask)

    @property
    def size(self) -> int:
        """The number in the sub-task's name."""
        return size_of(self.subtask)

    def part(self, name: str) -> Self:
        """Return the origin of one part of the table."""
        return replace(self, subtask=f"{self.subtask} {name}")

    def stream(self, *name: Key) -> Stream:
        """Return the stream of one step of the drawing."""
        return Stream("questions", *self.key, *name)

    def proofs(self, shares: dict[Skeleton, float], count: int, *, clauses: bool) -> list[Proof]:
        """Draw, word and shuffle units of several skeletons."""
        proofs: list[Proof] = []
        drawn = draw_units(self.world, self.split, shares, count, self.key)
        for units in drawn:
            name = units.skeleton.key
            world = self.world if units.skeleton.gap is None else self.world.whole
            forms = _forms(world, units, ("question words", *self.key, name))
            origin = replace(self, world=world)
            proofs += _prove(origin, units, self.stream("wording", name), forms, clauses=clauses)
        order = self.stream("order", *[skeleton.key for skeleton in shares]).permutation(count)
        if clauses and self.split == "unseen":  # they come in an order that is even from the first on
            places = [(np.arange(len(units)) + 0.5) / len(units) for units in drawn]
            order = np.argsort(np.concatenate(places), kind="stable")
        return [proofs[i] for i in order.tolist()]

    def identity(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns that name rows ``[start, stop)``; after 1.1 ids name the version, too."""
        version = () if self.version == VERSIONS[0] else (self.version,)
        index = pc.utf8_lpad(pa.array(np.arange(start, stop)).cast(pa.string()), 7, "0")
        constant = pa.array(np.zeros(stop - start, dtype=np.int32))
        return {
            "id": pc.binary_join_element_wise("-".join([self.subtask, self.split, *version]), index, "-"),
            "subtask": pa.DictionaryArray.from_arrays(constant, [self.subtask]),
            "world_id": pa.DictionaryArray.from_arrays(constant, [self.world.world_id]),
        }


def chain_table(origin: Origin, count: int) -> pa.Table:
    """Draw and word ``count`` questions of one chain each: single_rule, multi_hop, exceptions or unknown."""
    dials = origin.world.dials
    if origin.subtask.startswith("unknown"):
        known, gaps = unknown(origin.size, dials)
        proofs = origin.part("known").proofs(known, count - count // 2, clauses=False)
        proofs += origin.part("gap").proofs(gaps, count // 2, clauses=False)
        proofs = [proofs[i] for i in origin.stream("order").permutation(count).tolist()]
    else:
        proofs = origin.proofs(shares_of(origin.subtask, dials, origin.split), count, clauses=False)
    return proof_table(origin, proofs, origin.size)


def proof_table(origin: Origin, proofs: list[Proof], hops: int) -> pa.Table:
    """Return the table of questions with one answer each."""
    count = len(proofs)
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


def _prove(
    origin: Origin, units: Units, stream: Stream, forms: Iterable[dict[str, int]], *, clauses: bool
) -> list[Proof]:
    """Word units, as questions of their own or as clauses; the stream chooses templates and verbs."""
    world, skeleton, blocks = origin.world, units.skeleton, origin.world.blocks
    verbs, picks = (stream.integers(2**31, len(units)).tolist() for _ in range(2))
    hops = [
        _dicts(world, blocks[kind].take(rows)) for kind, rows in zip(skeleton.path, units.rows, strict=True)
    ]
    levels = [_dicts(world, blocks["exception"].take(rows)) for rows in units.exceptions]
    asides: Iterable[tuple[Hop, ...]] = zip(*levels, strict=True) if levels else repeat((), len(units))
    givers = None if units.initial_row is None else blocks["entity2attr"].ids[units.initial_row]
    numbers = (units.initial, givers, units.subject, units.other)
    columns = [[None] * len(units) if values is None else values.tolist() for values in numbers]
    proofs = []
    for chain, aside, amount, initial, giver, subject, other, verb, pick, names in zip(
        zip(*hops, strict=True), asides, units.amount.tolist(), *columns, verbs, picks, forms, strict=True
    ):
        last = chain[-1]
        stated = (last["attribute"], initial) if skeleton.initial == "stated" else None
        changed = skeleton.changed
        scene = Scene(world.names, skeleton.start, subject, stated, names, origin.version, changed=changed)
        scene.begin(chain[0], amount, verb, other)
        for kind, hop in list(zip(skeleton.path, chain, strict=True))[: skeleton.gap]:
            scene.fire(kind, hop)
            if aside and kind == "state2attr":
                scene.set_aside(hop, aside)
        if skeleton.gap is not None:
            known = skeleton.gap < len(chain)  # of the initial value
            scene.give_up(last["attribute"], initial if known else None, giver)
        elif skeleton.initial is not None:
            scene.conclude(last, initial, giver)
        if skeleton.initial is not None and len(chain) > 1:
            # How often rules about a change of one apply to what other rules change.
            scene.slots |= {"each": "", "chain": scene.texts["phrases"]["chain"]}
        choices = templates("clauses" if clauses else "frames", scene.start, scene.ask, origin.version)
        if not scene.slots.get("done", "done"):  # a verb without a passive
            choices = tuple(choice for choice in choices if "{done}" not in choice.text)
        template = choices[pick % len(choices)]
        facts, question = " & ".join(scene.facts), template.text.format_map(scene.slots)
        worded = (skeleton.name, facts, scene.query, question, template.id)
        proofs.append(Proof(*worded, scene.answer, skeleton.answer_type, scene.steps, scene.who))
    return proofs


def _forms(world: World, units: Units, key: tuple[Key, ...]) -> Iterable[dict[str, int]]:
    """Yield which names each question has for what it names, and the rule of its initial count for the attribute."""
    if not world.dials.words:
        return repeat({}, len(units))
    columns = draw_forms(key, world.dials.words, QUESTION_NAMES, np.arange(len(units)))
    if units.initial_row is not None:
        given = world.forms(world.blocks["entity2attr"].take(units.initial_row))
        columns["giver"] = given["attribute_form"]
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return (dict(zip(columns, row, strict=True)) for row in rows)


def _dicts(world: World, block: RuleBlock) -> Iterator[Hop]:
    """Yield a block's rows as dicts, with the forms of their names."""
    typed = block.columns | world.forms(block)
    columns = {"id": block.ids.tolist()} | {name: values.tolist() for name, values in typed.items()}
    names = tuple(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
