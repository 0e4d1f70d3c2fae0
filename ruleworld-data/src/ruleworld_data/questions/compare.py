"""Comparisons: how many several creatures have, each found by one or two rules, and one operation over these counts."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..text.fol import AND, OPERATIONS
from ..world import Stream
from ..world.vocabulary import term
from .scene import Step
from .skeletons import DOUBLE, Skeleton
from .tables import Origin, Proof, proof_table
from .wording import QuestionTemplate, comparison_templates

PARTS = {Skeleton(("entity2attr",)): 0.5} | {skeleton: share / 2 for skeleton, share in DOUBLE.items()}
"""What is compared, by share: counts of creatures whose kind is told, as they are and after a change."""
DRAWN, MOST_DRAWN = 16, 16_384
"""Parts drawn for a question, and for a table, which never draws more than its world has rules."""
MOST_ALIKE = 0.08
"""Share of an operation's questions that may have one number as their answer: what guessing it can bring."""
_ROUNDS, _TRIES = 100, 4096
_NAMES = re.compile(r"(\w+)\([xy]\)")
_GIVEN = re.compile(r"Has\(x, \w+, (\d+)\)")
_INDIVIDUAL = re.compile(r"\b([xy])\b")


class _Part(NamedTuple):
    """One count: at first, and in the end; the kinds, states and places it names must be in no other part."""

    proof: Proof
    initial: int
    final: int
    names: list[str]
    rules: list[int]


def compare_table(origin: Origin, count: int) -> pa.Table:
    """Draw and word ``count`` questions, a quarter for each operation; a ValueError if the world has too few parts.

    Parts are about different creatures, in half of the questions about one attribute as far as there are enough, and
    one count is the highest. ``Most`` has its answer in each place equally often, and in half of the questions it is
    not who had most at first.
    """
    size = min(DRAWN * count, MOST_DRAWN, len(origin.world))
    drawn = origin.part("parts").proofs(PARTS, size, clauses=True)
    parts, proofs = [_read(proof) for proof in drawn], list[Proof]()
    known: set[frozenset[int]] = set()
    for number, operation in enumerate(OPERATIONS):
        wanted, made, numbers = (count + number) // len(OPERATIONS), 0, Counter[int]()
        limit = wanted if operation == "Most" else max(2, int(MOST_ALIKE * wanted))
        templates = comparison_templates(operation)
        picks = origin.stream("wording", operation).integers(len(templates), wanted).tolist()
        sets = _sets(parts, origin.size, origin.stream(operation))
        while made < wanted:
            chosen = next(sets, None)
            if chosen is None:
                raise ValueError(f"{count} different {origin.subtask} questions wanted, not {made}")
            best = max(chosen, key=lambda part: part.final)
            if operation == "Most":
                overturned = best.initial < max(part.initial for part in chosen)
                if overturned != bool(made // origin.size % 2):
                    continue
                chosen.remove(best)
                chosen.insert(made % origin.size, best)
            rules = frozenset(rule for part in chosen for rule in part.rules)
            counts = [part.final for part in chosen]
            results = {"Sum": sum(counts), "Difference": max(counts) - min(counts)}
            result = results.get(operation, max(counts))
            if rules not in known and numbers[result] < limit:
                known.add(rules)
                numbers[result] += 1
                proofs.append(_word(operation, chosen, result, best.proof, templates[picks[made]]))
                made += 1
    order = origin.stream("order of comparisons").permutation(count)
    return proof_table(origin, [proofs[i] for i in order.tolist()], 1)


def _read(proof: Proof) -> _Part:
    (step,) = proof.steps
    given = _GIVEN.search(step.fol)
    assert given is not None
    return _Part(proof, int(given[1]), int(proof.answer), _NAMES.findall(proof.facts), step.rule_ids)


def _sets(parts: list[_Part], size: int, stream: Stream) -> Iterator[list[_Part]]:
    """Yield sets of parts that go together, each time in another order; they end."""
    queries = [part.proof.query for part in parts]
    _, attribute, sharing = np.unique(queries, return_inverse=True, return_counts=True)
    alike, first = np.argsort(attribute, kind="stable"), np.cumsum(sharing) - sharing
    crowded = np.flatnonzero(sharing[attribute] > size)
    for _ in range(_ROUNDS):
        rows = stream.integers(len(parts), _TRIES * size).reshape(_TRIES, size)
        if len(crowded):
            group = attribute[crowded[stream.integers(len(crowded), _TRIES)]]
            one = np.repeat(group, size)
            same = alike[first[one] + stream.integers(sharing[one], len(one))].reshape(_TRIES, size)
            rows[::2] = same[::2]
        for row in rows.tolist():
            chosen = [parts[i] for i in row]
            names = [name for part in chosen for name in part.names]
            rules = [rule for part in chosen for rule in part.rules]
            counts = sorted(part.final for part in chosen)
            if len({*names}) == len(names) and len({*rules}) == len(rules) and counts[-1] > counts[-2]:
                yield chosen


def _word(operation: str, parts: list[_Part], result: int, best: Proof, template: QuestionTemplate) -> Proof:
    """Word one question and its proof, whose last step closes with the operation."""
    counts, proofs = [str(part.final) for part in parts], [part.proof for part in parts]
    highest, lowest = ("higher", "lower") if len(parts) == 2 else ("highest", "lowest")
    top = f"The {highest} of {_listed(counts, 'and')} is {best.answer}"
    closing = {
        "Sum": f"In all {' + '.join(counts)} = {result}.",
        "Difference": f"The difference is {best.answer} - {int(best.answer) - result} = {result}.",
        "Highest": f"{top}.",
        "Most": f"{top}: the {best.who}.",
    }[operation]
    answer = best.facts.partition("(")[0] if operation == "Most" else str(result)
    steps, facts, queries = [], [], []
    for number, proof in enumerate(proofs, start=1):
        (step,), name = proof.steps, partial(_INDIVIDUAL.sub, rf"\g<1>{number}")
        steps.append(Step(step.rule_ids, step.nl, name(step.fol), name(step.state)))
        facts.append(name(proof.facts))
        queries.append(name(proof.query))
    compared = f"{operation}({', '.join(counts)}) = {answer}"
    ids, nl, fol, _ = steps[-1]
    steps[-1] = Step(ids, f"{nl} {closing}", f"{fol}; {compared}", f"{operation}({answer})")
    clauses = [proof.question for proof in proofs]
    question = template.text.format(
        parts="; ".join([*clauses[:-1], f"and {clauses[-1]}"]),
        creatures=_listed([f"the {proof.who}" for proof in proofs], "or"),
        highest=highest,
        lowest=lowest,
    )
    return Proof(
        skeleton=AND.join(proof.skeleton for proof in proofs),
        facts=AND.join(facts),
        query=f"{operation}({', '.join(queries)})",
        question=question,
        template_id=template.id,
        answer=term(answer),
        answer_type="creature" if operation == "Most" else "count",
        steps=steps,
        who=best.who,
    )


def _listed(things: list[str], word: str) -> str:
    return f"{', '.join(things[:-1])} {word} {things[-1]}"
