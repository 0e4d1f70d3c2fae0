"""Kits: what a method may see of a setting, as files: questions, rules and pools. No answers, no proofs."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.io import write_whole

from ..methods import Method
from ..run.data import Question, RuleTable
from ..run.pools import Pool, pools_sha256
from ..spec import RunSpec, canonical_json
from .judge import PUBLIC_SEED, Judge, board_spec
from .parsing import BROKEN, quote

QUESTIONS, POOLS, RULES = "questions.jsonl", "pools.jsonl", "rules.parquet"


def kit_spec(
    pool_size: int, scale: str, split: str, subtasks: Sequence[str] = (), seed: int = PUBLIC_SEED
) -> RunSpec:
    """Return the spec that names the questions and pools of a kit."""
    return board_spec({"name": "kit"}, "nl", pool_size, scale, split, subtasks, seed)


def write_kit(folder: Path, judge: Judge, spec: RunSpec) -> dict[str, str]:
    """Write the kit of a spec's setting; return the sha256 of each file's rows, and of the pools (``pools``)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    workspace = judge.workspace(spec)
    pools = workspace.pools(spec)
    # Sorted: the order of a shared list of rules says nothing.
    members = [sorted(pool.ids.tolist()) for pool in pools]
    questions = _lines(
        {"id": question.id, "subtask": question.subtask, "question": question.text, "pool": number}
        for number, pool in enumerate(pools)
        for question in pool.questions
    )
    lists = _lines({"pool": number, "rules": rules} for number, rules in enumerate(members))
    rules = workspace.rules(spec.split)
    wanted = np.array(sorted(set().union(*members)), np.int32)
    table = rules.table.select(["id", "type", "nl", "fol"]).take(pa.array(rules.positions(wanted)))
    parquet = io.BytesIO()
    pq.write_table(table, parquet, compression="zstd")
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in ((QUESTIONS, questions), (POOLS, lists), (RULES, parquet.getvalue())):
        write_whole(folder / name, body)
    # Parquet's bytes depend on the library's version, the rows do not.
    hashed = {QUESTIONS: questions, POOLS: lists, "rules": _lines(table.to_pylist())}
    hashes = {name: hashlib.sha256(body).hexdigest() for name, body in hashed.items()}
    return {**hashes, "pools": pools_sha256(pools)}


def answer_kit(kit: Path, spec: RunSpec, out: Path) -> int:
    """Run a spec's method on a kit, write predictions, and return how many there are.

    The spec gives method, representation, sub-tasks and K; the world is the kit's. ``out`` is JSON Lines that
    `rwbench import` and rounds read. A ValueError if the method needs what a kit does not hold, or a question fails.
    """
    method: Method = Method.from_dict(spec.method)
    work = [
        (pool, tuple(question for question in pool.questions if question.subtask in spec.subtasks))
        for pool in read_kit(kit, spec.representation)
    ]
    method.prepare([pool for pool, _ in work])
    rows: list[dict[str, Any]] = []
    try:
        for output in method.run(work, spec.top_k):
            if output.error is not None:
                raise ValueError(f"question {output.id} failed: {output.error}")
            answer = {"output": output.text, "answers": output.answers, "retrieved": output.retrieved}
            rows.append({"id": output.id, **answer})
    except KeyError as error:
        raise ValueError(f"{method.label} needs {error} of a question, which a kit does not hold") from None
    write_whole(out, _lines(rows))
    return len(rows)


def read_kit(kit: Path, representation: str) -> list[Pool]:
    """Return a kit's pools with their questions, which have no gold.

    Rules get the columns ``conclusion_nl`` and ``conclusion_fol`` back, which rule memories read: a kit holds whole
    rules only, and the hashes of published rounds are over its four columns.
    """
    for name in (QUESTIONS, POOLS, RULES):
        if not (kit / name).is_file():
            raise FileNotFoundError(
                f"{kit} has no {name}; a kit is made by `rwbench kit` or `rwbench round seal`"
            )
    try:
        return _read_kit(kit, representation)
    except BROKEN as error:
        what = f"{type(error).__name__}: {quote(str(error))[1:-1]}"
        raise ValueError(
            f"{kit} is no kit as `rwbench kit` writes it ({what}); get its files again"
        ) from None


def _read_kit(kit: Path, representation: str) -> list[Pool]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from ruleworld_data.text import halves_fol, halves_nl

    table = pq.read_table(kit / RULES)
    for name, halves in (("nl", halves_nl), ("fol", halves_fol)):
        conclusions = [halves(text)[1] for text in table[name].to_pylist()]
        table = table.append_column(f"conclusion_{name}", pa.array(conclusions, pa.string()))
    rules = RuleTable(table)
    members: dict[int, list[Question]] = {}
    for index, row in enumerate(_rows(kit / QUESTIONS)):
        name, subtask, text = (_word(row[key]) for key in ("id", "subtask", "question"))
        question = Question(name, subtask, "", text, index, 0, (), (), row)
        members.setdefault(row["pool"], []).append(question)
    return [
        Pool(np.array([*row["rules"]], np.int32), rules, representation, tuple(members.get(row["pool"], ())))
        for row in _rows(kit / POOLS)
    ]


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text was expected, got {value!r}")
    return value


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(canonical_json(row) + "\n" for row in rows).encode()


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
