"""Kits: what a method may see of a setting, as files: questions, rules and pools. No answers, no proofs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from ruleworld_data.io import whole_folder

from ..run.books import source_of
from ..run.pools import pools_of
from ..spec import RunSpec, canonical_json, json_bytes

QUESTIONS, POOLS, RULES = "questions.jsonl", "pools.jsonl", "rules.parquet"
SETTING_FILE, SETTING = "setting.json", ("pool_size", "scale", "split", "subtasks", "data")
"""What was asked; of a sealed round, all of it is public."""
METHOD = {"name": "kit"}
"""Stands in a spec whose questions and pools alone matter."""


def write_kit(folder: Path, spec: RunSpec) -> None:
    """Write the kit of a spec's setting as a folder, whole or not at all; a FileExistsError if one is there."""
    source = source_of(spec)
    pools = pools_of(spec, source)
    # Sorted: the order of a shared list of rules says nothing.
    members = [sorted(pool.ids.tolist()) for pool in pools]
    questions = (
        {"id": question.id, "subtask": question.subtask, "question": question.text, "pool": number}
        for number, pool in enumerate(pools)
        for question in pool.questions
    )
    rules = source.rules(spec.split).take(sorted(set().union(*members)))
    with whole_folder(folder) as part:
        (part / SETTING_FILE).write_bytes(json_bytes({name: getattr(spec, name) for name in SETTING}))
        (part / QUESTIONS).write_text(_lines(questions), encoding="utf-8")
        (part / POOLS).write_text(_lines({"pool": n, "rules": ids} for n, ids in enumerate(members)))
        pq.write_table(rules.select(["id", "type", "nl", "fol"]), part / RULES, compression="zstd")


def read_setting(folder: Path) -> dict[str, Any]:
    """Return the setting of a kit, as `board_spec` takes it; a ValueError if it was damaged."""
    path = folder / SETTING_FILE
    if not path.is_file():
        raise FileNotFoundError(f"no {path}, so {folder} is no kit; write one: rwbench kit {folder}")
    try:
        setting = json.loads(path.read_bytes())
        return {name: setting[name] for name in SETTING}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{path} is not as `rwbench kit` writes it; write the kit anew") from None


def same_kit(first: Path, second: Path) -> bool:
    """Whether two kits have the same questions, pools and rules; Parquet's bytes depend on the library's version."""
    texts = ([(kit / name).read_bytes() for name in (QUESTIONS, POOLS)] for kit in (first, second))
    return next(texts) == next(texts) and pq.read_table(first / RULES).equals(pq.read_table(second / RULES))


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(canonical_json(row) + "\n" for row in rows)
