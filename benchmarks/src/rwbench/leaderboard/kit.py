"""`rwbench kit`: what a method may see of a setting, as files: questions, rules, pools. No answers, no proofs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..run.pools import pools_sha256
from ..spec import RunSpec, canonical_json
from .rescore import Judge, pool_design

QUESTIONS, POOLS, RULES = "questions.jsonl", "pools.jsonl", "rules.parquet"


def write_kit(
    folder: Path,
    judge: Judge,
    scale: str,
    split: str,
    pool_size: int,
    seed: int,
    subtasks: Sequence[str] = (),
) -> dict[str, str]:
    """Write the files and return the sha256 of each, and of the pools (``pools``).

    Parameters
    ----------
    folder : Path
        Made if missing.
    judge : Judge
    scale, split, pool_size, seed
        Name world, questions and pools.
    subtasks : sequence of str
        Empty: all.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    workspace = judge.workspace(scale, seed)
    fields: dict[str, Any] = {"subtasks": tuple(subtasks)} if subtasks else {}
    spec = RunSpec(
        method={"name": "kit"},
        representation="nl",
        data=workspace.source.version,
        scale=scale,
        world_seed=seed,
        split=split,
        **pool_design(pool_size, scale),
        **fields,
    )
    pools = workspace.pools(spec)
    questions: list[dict[str, Any]] = []
    lists: list[dict[str, Any]] = []
    for number, pool in enumerate(pools):
        # Sorted: the order of a shared list of rules says nothing.
        lists.append({"pool": number, "rules": sorted(pool.ids.tolist())})
        questions += [
            {"id": question.id, "subtask": question.subtask, "question": question.text, "pool": number}
            for question in pool.questions
        ]
    table = workspace.rules(split).table.select(["id", "type", "nl", "fol"])
    wanted = pa.array(sorted({rule for row in lists for rule in row["rules"]}), pa.int32())
    table = table.take(pa.array(workspace.rules(split).positions(wanted.to_numpy())))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    bodies = {QUESTIONS: _lines(questions), POOLS: _lines(lists), RULES: buffer.getvalue()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        write_whole(folder / name, body)
    hashes = {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items() if name != RULES}
    # Parquet's bytes depend on the library's version, the rows do not.
    rows = "".join(canonical_json(row) + "\n" for row in table.to_pylist())
    return {**hashes, "rules": hashlib.sha256(rows.encode()).hexdigest(), "pools": pools_sha256(pools)}


def _lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(canonical_json(row) + "\n" for row in rows).encode()
