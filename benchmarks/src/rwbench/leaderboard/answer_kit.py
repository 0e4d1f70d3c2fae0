"""Answer a kit with one of our own methods: questions, rules and pools from its files, no gold anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.io import write_whole
from ruleworld_data.text import halves_fol, halves_nl

from ..methods import Method
from ..run.data import Question, RuleTable
from ..run.pools import Pool
from ..spec import RunSpec, canonical_json
from .kit import POOLS, QUESTIONS, RULES


def answer_kit(kit: Path, spec: RunSpec, out: Path) -> int:
    """Run a spec's method on a kit, write predictions, and return how many there are.

    Parameters
    ----------
    kit : Path
        Folder that `rwbench.leaderboard.kit.write_kit` wrote.
    spec : RunSpec
        Names method, representation, sub-tasks and K; the world is the kit's.
    out : Path
        JSON Lines that `rwbench import` and rounds read.

    Raises
    ------
    FileNotFoundError
        If the kit is not whole.
    ValueError
        If the method needs what a kit does not hold, or a question fails.
    """
    method: Method = Method.from_dict(spec.method)
    work = [
        (pool, tuple(question for question in pool.questions if question.subtask in spec.subtasks))
        for pool in read_kit(kit, spec.representation)
    ]
    method.prepare([pool for pool, _ in work])
    lines = []
    try:
        for output in method.run(work, spec.top_k):
            if output.error is not None:
                raise ValueError(f"question {output.id} failed: {output.error}")
            row: dict[str, Any] = {"id": output.id, "output": output.text, "answers": output.answers}
            lines.append(canonical_json(row | {"retrieved": output.retrieved}) + "\n")
    except KeyError as error:
        raise ValueError(f"{method.label} needs {error} of a question, which a kit does not hold") from None
    write_whole(out, "".join(lines).encode())
    return len(lines)


def read_kit(kit: Path, representation: str) -> list[Pool]:
    """Return a kit's pools with their questions, which have no gold.

    Rules get the columns ``conclusion_nl`` and ``conclusion_fol`` back, which rule memories read: a kit holds whole
    rules only, and the hashes of published rounds are over its four columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in (QUESTIONS, POOLS, RULES):
        if not (kit / name).is_file():
            raise FileNotFoundError(
                f"{kit} has no {name}; a kit is made by `rwbench kit` or `rwbench round seal`"
            )
    table = pq.read_table(kit / RULES)
    for name, halves in (("nl", halves_nl), ("fol", halves_fol)):
        conclusions = [halves(text)[1] for text in table[name].to_pylist()]
        table = table.append_column(f"conclusion_{name}", pa.array(conclusions, pa.string()))
    rules = RuleTable(table)
    members: dict[int, list[Question]] = {}
    for index, row in enumerate(_rows(kit / QUESTIONS)):
        question = Question(row["id"], row["subtask"], "", row["question"], index, 0, (), (), row)
        members.setdefault(row["pool"], []).append(question)
    return [
        Pool(np.array(row["rules"], np.int32), rules, representation, tuple(members.get(row["pool"], ())))
        for row in _rows(kit / POOLS)
    ]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
