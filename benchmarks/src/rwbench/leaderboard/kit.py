"""Kits: what a method may see of a setting, as files: questions, rules and pools. No answers, no proofs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.io import write_whole

from ..run.pools import pools_sha256
from ..spec import RunSpec, canonical_json
from .judge import Judge

QUESTIONS, POOLS, RULES = "questions.jsonl", "pools.jsonl", "rules.parquet"
METHOD = {"name": "kit"}
"""Stands in a spec whose questions and pools alone matter."""


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


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(canonical_json(row) + "\n" for row in rows).encode()
