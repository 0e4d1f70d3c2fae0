"""Units as text: every drawn unit becomes a scene, and every scene a question, or a clause of one, with its proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..spec import ROLES
from ..world import RuleBlock, Stream, World
from .scene import Hop, Scene, Step
from .units import Units
from .wording import clause_templates, question_templates


@dataclass(frozen=True, slots=True)
class Proof:
    """What one unit contributes to a question.

    Attributes
    ----------
    skeleton : str
        Name of its reasoning skeleton.
    facts, query : str
        The scope in FOL.
    question, template_id : str
        The worded question or clause.
    answer, answer_type : str
        The gold answer.
    steps : list of Step
        One per hop.
    """

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
    skeleton, answer_type = units.skeleton.name, units.skeleton.answer_type
    verbs = stream.integers(2**31, len(units)).tolist()
    picks = stream.integers(2**31, len(units)).tolist()
    proofs = []
    for scene, pick in zip(_scenes(world, units, verbs), picks, strict=True):
        choices = templates(scene.start, scene.ask)
        template = choices[pick % len(choices)]
        facts, question = " & ".join(scene.facts), template.text.format_map(scene.slots)
        proofs.append(
            Proof(skeleton, facts, scene.query, question, template.id, scene.answer, answer_type, scene.steps)
        )
    return proofs


def _scenes(world: World, units: Units, verbs: list[int]) -> Iterator[Scene]:
    """Write every unit of one skeleton."""
    skeleton, path = units.skeleton, units.skeleton.path
    givers = None if units.initial_row is None else world.blocks["entity2attr"].ids[units.initial_row]
    hops = [_hops(world.blocks[kind].take(rows)) for kind, rows in zip(path, units.rows, strict=True)]
    numbers = (units.initial, givers, units.subject, units.other)
    columns = [[None] * len(units) if values is None else values.tolist() for values in numbers]
    rows = zip(zip(*hops, strict=True), units.amount.tolist(), *columns, verbs, strict=True)
    for chain, amount, initial, giver, subject, other, verb in rows:
        first, last = chain[0], chain[-1]
        stated = (last["attribute"], initial) if skeleton.initial == "stated" else None
        scene = Scene(world.names, skeleton.start, subject, stated)
        if skeleton.start == "change":
            scene.start_change(first, amount, verb)
        elif skeleton.start == "environment":
            scene.start_environment(first)
        elif skeleton.start == "state":
            scene.start_state(first)
        elif skeleton.start == "action":  # only a target enters an environment
            scene.start_action(first, ROLES[first.get("role", ROLES.index("target"))], other)
        for kind, hop in zip(path, chain, strict=True):
            scene.fire(kind, hop)
        if skeleton.initial is not None:
            scene.conclude(last, initial, giver)
        yield scene


def _hops(block: RuleBlock) -> Iterator[Hop]:
    """Yield a block's rows as dicts."""
    columns = {"id": block.ids.tolist()} | {name: values.tolist() for name, values in block.columns.items()}
    names = tuple(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
