"""Comparisons: how many several creatures have, each found by one or two rules, and one operation over these counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..text.fol import AND, OPERATIONS
from ..world import Stream
from ..world.vocabulary import term
from .scene import Step
from .skeletons import DOUBLE, Skeleton
from .tables import Origin, Proof, proof_table
from .wording import comparison_templates

PARTS = {Skeleton(("entity2attr",)): 0.5} | {skeleton: share / 2 for skeleton, share in DOUBLE.items()}
"""What is compared, by share: counts of creatures whose kind is told, as they are and after a change."""
DRAWN, MOST_DRAWN = 16, 16_384
"""Parts drawn for a question, as far as the limit of a table goes; each may serve several."""
MOST_ALIKE = 0.08
"""Share of an operation's questions that may have one number as their answer: what guessing it can bring."""
_TRIES = 4096
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
    """Draw and word ``count`` questions, a quarter for each operation.

    Parts are about different creatures, in half of the questions about one attribute as far as there are enough, and
    one count is the highest. ``Most`` has its answer in each place equally often, and in half of the questions it is
    not who had most at first.

    Raises
    ------
    ValueError
        If the world has too few parts that differ.
    """
    drawn = origin.part("parts").proofs(PARTS, min(DRAWN * count, MOST_DRAWN), clauses=True)
    parts = [_read(proof) for proof in drawn]
    known: set[frozenset[int]] = set()
    proofs: list[Proof] = []
    for number, operation in enumerate(OPERATIONS):
        stream, wanted = origin.stream(operation), (count + number) // len(OPERATIONS)
        limit = max(2, int(MOST_ALIKE * wanted))
        made, answers = 0, Counter[str]()
        sets = _sets(parts, origin.size, stream)
        while made < wanted:
            chosen = next(sets, None)
            if chosen is None:
                raise ValueError(f"{count} different {origin.subtask} questions wanted; use a larger world")
            rules = frozenset(rule for part in chosen for rule in part.rules)
            best = max(chosen, key=lambda part: part.final)
            if operation == "Most":
                overturned = best.initial < max(part.initial for part in chosen)
                if overturned != bool(made // origin.size % 2):
                    continue
                chosen.remove(best)
                chosen.insert(made % origin.size, best)
            proof = _compare(operation, chosen, best, made)
            if rules in known or (operation != "Most" and answers[proof.answer] == limit):
                continue
            known.add(rules)
            answers[proof.answer] += 1
            made += 1
            proofs.append(proof)
    order = origin.stream("order of comparisons").permutation(count)
    return proof_table(origin, [proofs[i] for i in order.tolist()], 1)


def _read(proof: Proof) -> _Part:
    (step,) = proof.steps
    given = _GIVEN.search(step.fol)
    assert given is not None
    return _Part(proof, int(given[1]), int(proof.answer), _NAMES.findall(proof.facts), step.rule_ids)


def _sets(parts: list[_Part], size: int, stream: Stream) -> Iterator[list[_Part]]:
    """Yield sets of parts that go together, each time in another order; they end where hardly any do."""
    queries = [part.proof.query for part in parts]
    _, attribute, sharing = np.unique(queries, return_inverse=True, return_counts=True)
    alike, first = np.argsort(attribute, kind="stable"), np.cumsum(sharing) - sharing
    crowded = np.flatnonzero(sharing[attribute] > size)
    found = 1
    while found:
        found = 0
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
                found += 1
                yield chosen


def _compare(operation: str, parts: list[_Part], best: _Part, number: int) -> Proof:
    """Word one question and its proof, whose last step closes with the operation."""
    counts = [part.final for part in parts]
    listed = _listed([str(count) for count in counts], "and")
    low, high = min(counts), max(counts)
    highest, lowest = ("higher", "lower") if len(parts) == 2 else ("highest", "lowest")
    answer, closing = {
        "Sum": (str(sum(counts)), f"In all {' + '.join(map(str, counts))} = {sum(counts)}."),
        "Difference": (str(high - low), f"The difference is {high} - {low} = {high - low}."),
        "Highest": (str(high), f"The {highest} of {listed} is {high}."),
        "Most": (
            best.proof.facts.partition("(")[0],
            f"The {highest} of {listed} is {high}: the {best.proof.who}.",
        ),
    }[operation]
    proofs = [part.proof for part in parts]
    steps, facts, queries = [], [], []
    for part, proof in enumerate(proofs, start=1):
        (step,) = proof.steps
        fol, state, scene, query = (
            _INDIVIDUAL.sub(rf"\g<1>{part}", text)
            for text in (step.fol, step.state, proof.facts, proof.query)
        )
        steps.append(Step(step.rule_ids, step.nl, fol, state))
        facts.append(scene)
        queries.append(query)
    ids, nl, fol, _ = steps[-1]
    compared = f"{operation}({', '.join(map(str, counts))}) = {answer}"
    steps[-1] = Step(ids, f"{nl} {closing}", f"{fol}; {compared}", f"{operation}({answer})")
    templates = comparison_templates(operation)
    template = templates[number % len(templates)]
    clauses = [proof.question for proof in proofs]
    question = template.text.format(
        parts="; ".join([*clauses[:-1], f"and {clauses[-1]}"]),
        creatures=_listed([f"the {proof.who}" for proof in proofs], "or"),
        highest=highest,
        lowest=lowest,
    )
    skeleton, query = " & ".join(proof.skeleton for proof in proofs), f"{operation}({', '.join(queries)})"
    kind = "creature" if operation == "Most" else "count"
    return Proof(
        skeleton, AND.join(facts), query, question, template.id, term(answer), kind, steps, best.proof.who
    )


def _listed(things: list[str], word: str) -> str:
    return f"{', '.join(things[:-1])} {word} {things[-1]}"
