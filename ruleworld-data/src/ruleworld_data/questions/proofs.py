"""Units as text: every drawn unit becomes a scene, and every scene a question, or a clause of one, with its proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..world import RuleBlock, Stream, World
from .scene import Hop, Scene, Step
from .units import Units
from .wording import clause_templates, question_templates


class Proof(NamedTuple):
    """What one unit contributes to a question: its scope in FOL, its words, its answer, and one step a hop."""

    skeleton: str
    facts: str
    query: str
    question: str
    template_id: str
    answer: str
    answer_type: str
    steps: list[Step]


def prove(world: World, units: Units, stream: Stream, *, clauses: bool) -> list[Proof]:
    """Word units, as questions of their own or as clauses of parallel questions.

    Parameters
    ----------
    stream : Stream
        Chooses templates and verbs.
    clauses : bool
        Word them as clauses.
    """
    templates = clause_templates if clauses else question_templates
    skeleton, blocks = units.skeleton, world.blocks
    verbs, picks = (stream.integers(2**31, len(units)).tolist() for _ in range(2))
    hops = [_dicts(blocks[kind].take(rows)) for kind, rows in zip(skeleton.path, units.rows, strict=True)]
    givers = None if units.initial_row is None else blocks["entity2attr"].ids[units.initial_row]
    numbers = (units.initial, givers, units.subject, units.other)
    columns = [[None] * len(units) if values is None else values.tolist() for values in numbers]
    proofs = []
    for chain, amount, initial, giver, subject, other, verb, pick in zip(
        zip(*hops, strict=True), units.amount.tolist(), *columns, verbs, picks, strict=True
    ):
        last = chain[-1]
        stated = (last["attribute"], initial) if skeleton.initial == "stated" else None
        scene = Scene(world.names, skeleton.start, subject, stated)
        scene.begin(chain[0], amount, verb, other)
        for kind, hop in zip(skeleton.path, chain, strict=True):
            scene.fire(kind, hop)
        if skeleton.initial is not None:
            scene.conclude(last, initial, giver)
        choices = templates(scene.start, scene.ask)
        template = choices[pick % len(choices)]
        facts, question = " & ".join(scene.facts), template.text.format_map(scene.slots)
        worded = (skeleton.name, facts, scene.query, question, template.id)
        proofs.append(Proof(*worded, scene.answer, skeleton.answer_type, scene.steps))
    return proofs


def _dicts(block: RuleBlock) -> Iterator[Hop]:
    """Yield a block's rows as dicts."""
    columns = {"id": block.ids.tolist()} | {name: values.tolist() for name, values in block.columns.items()}
    names = tuple(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
