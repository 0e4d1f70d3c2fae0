"""Checks of the files: manifest, hashes, row counts, schema."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..io.schema import QUESTION_SCHEMA, RULE_SCHEMA
from ..spec import QUESTION_SPLITS, RULE_SPLITS, SCALES, SUBTASKS, WorldSpec
from .report import Findings, StageProgress

_FIELDS = {"path": str, "config": str, "split": str, "rows": int, "sha256": str, "bytes": int}


@dataclass(frozen=True)
class ReadableShard:
    """One readable shard of a build."""

    path: Path
    name: str
    config: str
    split: str
    rows: int


def check_shards(
    folder: Path, manifest: dict[str, Any], findings: Findings, progress: StageProgress
) -> list[ReadableShard]:
    """Check manifest and files.

    Returns
    -------
    list of ReadableShard
        The shards that can be read, in the order of the manifest.
    """
    listed = _listed(manifest, findings)
    shards = []
    for done, entry in enumerate(listed, start=1):
        shard = _check_file(folder, entry, findings)
        if shard:
            shards.append(shard)
        progress("files", done, len(listed))
    _check_counts(manifest, shards, findings)
    stray = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet")} - {
        e["path"] for e in listed
    }
    findings["shards"].fail(
        *(f"{name} is in the folder but not in build.json; remove it" for name in sorted(stray))
    )
    return shards


def _listed(manifest: dict[str, Any], findings: Findings) -> list[dict[str, Any]]:
    """Return the manifest's well-formed entries."""
    check = findings["manifest"]
    check.checked = 1
    if manifest.get("scale") not in SCALES:
        check.fail(f"scale is {manifest.get('scale')!r}, expected one of {', '.join(SCALES)}")
    if not isinstance(manifest.get("seed"), int):
        check.fail(f"seed is {manifest.get('seed')!r}, expected an integer")
    splits = {"rules": RULE_SPLITS} | dict.fromkeys(SUBTASKS, QUESTION_SPLITS)
    good = []
    for entry in manifest["shards"]:
        if not isinstance(entry, dict):
            check.fail(f"{entry!r} is no shard entry")
            continue
        wrong = [name for name, kind in _FIELDS.items() if not isinstance(entry.get(name), kind)]
        if wrong:
            check.fail(f"{entry.get('path', entry)!r}: {wrong[0]} is {entry.get(wrong[0])!r}")
        elif entry["split"] not in splits.get(entry["config"], ()):
            check.fail(
                f"{entry['path']}: no configuration {entry['config']!r} with a split {entry['split']!r}"
            )
        elif Path(entry["path"]).is_absolute() or ".." in Path(entry["path"]).parts:
            check.fail(f"{entry['path']} points outside the folder")
        else:
            good.append(entry)
    repeated = [path for path, times in Counter(entry["path"] for entry in good).items() if times > 1]
    check.fail(*(f"{path} is listed more than once" for path in repeated))
    return good


def _check_file(folder: Path, entry: dict[str, Any], findings: Findings) -> ReadableShard | None:
    path, name = folder / entry["path"], entry["path"]
    check = findings["shards"]
    check.checked += 1
    again = "build the folder again, or copy this file again"
    if not path.is_file():
        check.fail(f"{name} is missing; {again}")
        return None
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    genuine = size == entry["bytes"] and digest == entry["sha256"]
    if size != entry["bytes"]:
        check.fail(f"{name} has {size:,} bytes, build.json says {entry['bytes']:,}; {again}")
    elif not genuine:
        check.fail(f"{name} has SHA-256 {digest[:12]}..., build.json says {entry['sha256'][:12]}...; {again}")
    try:
        file_schema, rows = pq.read_schema(path), pq.read_metadata(path).num_rows
        if not genuine:  # what was damaged may still not be readable
            pq.read_table(path).validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        check.fail(f"{name} is no readable parquet file ({str(error).splitlines()[0][:80]}); {again}")
        return None
    if rows != entry["rows"]:
        check.fail(f"{name} has {rows:,} rows, build.json says {entry['rows']:,}; {again}")
    wanted = RULE_SCHEMA if entry["config"] == "rules" else QUESTION_SCHEMA
    findings["schema"].checked += 1
    problem = _schema_problem(file_schema, wanted)
    if not problem and (holes := pq.read_table(path, columns=["id"]).column("id").null_count):
        problem = f"column id holds {holes:,} nulls"
    if problem:
        findings["schema"].fail(f"{name}: {problem}")
        return None
    return ReadableShard(path, name, entry["config"], entry["split"], rows)


def _schema_problem(found: pa.Schema, wanted: pa.Schema) -> str:
    if found.names != wanted.names:
        return f"columns {', '.join(found.names)}; expected {', '.join(wanted.names)}"
    for field in wanted:
        if found.field(field.name).type != field.type:
            return f"column {field.name} has type {found.field(field.name).type}, expected {field.type}"
    return ""


def _check_counts(manifest: dict[str, Any], shards: list[ReadableShard], findings: Findings) -> None:
    scale = manifest.get("scale")
    if scale not in SCALES:
        findings.skip("the scale is unknown", "counts")
        return
    rows: Counter[tuple[str, str]] = Counter()
    for shard in shards:
        rows[shard.config, shard.split] += shard.rows
    wanted = [("rules", split) for split in RULE_SPLITS]
    wanted += [(config, split) for config in SUBTASKS for split in QUESTION_SPLITS]
    findings["counts"].checked = len(wanted)
    for config, split in wanted:
        expected = WorldSpec(scale, split).num_rows(config)
        if rows[config, split] != expected:
            found = rows[config, split]
            findings["counts"].fail(f"{config}/{split} has {found:,} readable rows, expected {expected:,}")
