"""Units as text: every drawn unit becomes a scene, and every scene a question or a clause of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from ..world.arrays import Ints, RuleBlock, World
from ..world.names import Names
from ..world.streams import Stream
from .scene import Hop, Scene, Step
from .skeletons import subject_role
from .units import Units
from .wording import clause_templates, question_templates


@dataclass(frozen=True, slots=True)
class Proof:
    """What one unit contributes to a question.

    Attributes
    ----------
    facts, query : str
        The scope in FOL.
    question, template_id : str
        The worded question or clause.
    answer, answer_type : str
        The gold answer.
    steps : list of Step
        One per hop.
    """

    facts: str
    query: str
    question: str
    template_id: str
    answer: str
    answer_type: str
    steps: list[Step]


def unit_texts(world: World, names: Names, units: Units, stream: Stream, *, clauses: bool) -> list[Proof]:
    """Word units, as questions of their own or as clauses of merged questions.

    Parameters
    ----------
    stream : Stream
        Chooses templates and verbs.
    clauses : bool
        Word them as clauses.
    """
    templates = clause_templates if clauses else question_templates
    verbs = stream.integers(2**31, len(units)).tolist()
    picks = stream.integers(2**31, len(units)).tolist()
    proofs = []
    for scene, pick in zip(_scenes(world, names, units, verbs), picks, strict=True):
        choices = templates(scene.start, scene.ask)
        template = choices[pick % len(choices)]
        question = template.text.format_map(scene.slots)
        facts = " & ".join(scene.facts)
        proofs.append(
            Proof(
                facts,
                scene.query,
                question,
                template.id,
                scene.answer,
                units.skeleton.answer_type,
                scene.steps,
            )
        )
    return proofs


def _scenes(world: World, names: Names, units: Units, verbs: list[int]) -> Iterator[Scene]:
    """Write every unit of one skeleton."""
    skeleton, path = units.skeleton, units.skeleton.path
    givers = world.blocks["entity2attr"].ids
    hops = [_records(world.blocks[kind].take(rows)) for kind, rows in zip(path, units.rows, strict=True)]
    roles = subject_role(world, skeleton, units.rows[0]) if skeleton.start == "action" else repeat("")
    columns = zip(
        zip(*hops, strict=True),
        units.units.tolist(),
        _listed(units.initial, len(units)),
        _listed(None if units.initial_row is None else givers[units.initial_row], len(units)),
        _listed(units.subject, len(units)),
        _listed(units.other, len(units)),
        verbs,
        roles,
        strict=False,
    )
    for chain, size, initial, giver, subject, other, verb, role in columns:
        first, last = chain[0], chain[-1]
        stated = (last["attribute"], initial) if skeleton.initial == "stated" else None
        scene = Scene(names, skeleton.start, subject, stated)
        if skeleton.start == "change":
            scene.start_change(first, size, verb)
        elif skeleton.start == "environment":
            scene.start_environment(first)
        elif skeleton.start == "state":
            scene.start_state(first)
        elif skeleton.start == "action":
            scene.start_action(first, role, other)
        for kind, hop in zip(path, chain, strict=True):
            scene.fire(kind, hop)
        if skeleton.initial is not None:
            scene.conclude(last, initial, giver)
        yield scene


def _listed(values: Ints | None, count: int) -> list[int] | list[None]:
    return [None] * count if values is None else values.tolist()


def _records(block: RuleBlock) -> Iterator[Hop]:
    """Yield a block's rows as dicts."""
    columns = {"id": block.ids.tolist()} | {name: values.tolist() for name, values in block.columns.items()}
    keys = tuple(columns)
    return (dict(zip(keys, row, strict=True)) for row in zip(*columns.values(), strict=True))
