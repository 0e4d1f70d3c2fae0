"""Checks of the files: manifest, hashes, row counts, schema."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..io.builds import world_spec
from ..io.files import file_digest
from ..io.schema import QUESTION_SCHEMA, rule_schema
from ..io.shards import Shard, plan
from .report import Check, Findings, StageProgress

_AGAIN = "build the folder again, or copy this file again"


def check_shards(
    folder: Path, manifest: dict[str, Any], findings: Findings, progress: StageProgress
) -> list[Shard]:
    """Check manifest and files against what a build of this scale and seed holds.

    Only files that such a build has are opened, whatever the manifest lists.

    Returns
    -------
    list of Shard
        The shards that can be read.
    """
    findings["manifest"].checked = 1
    try:
        spec = world_spec(manifest)
        planned = {shard.path: shard for shard in plan(spec.scale, spec.seed, spec.version, spec.dials)}
    except ValueError as error:
        findings["manifest"].fail(str(error))
        findings.skip("the manifest names no scale and seed", "shards", "schema", "counts")
        return []
    schemas = {True: rule_schema(spec.dials), False: QUESTION_SCHEMA}
    entries = _entries(manifest["shards"], planned, findings["manifest"])
    shards, rows = [], Counter(dict.fromkeys(((s.config, s.split) for s in planned.values()), 0))
    for done, (path, entry) in enumerate(entries.items(), start=1):
        shard, found = planned[path], _check_file(folder / path, path, entry, findings, schemas)
        if found is not None:
            shards.append(shard)
            rows[shard.config, shard.split] += found
        progress("files", done, len(entries))
    for (config, split), found in rows.items():
        expected = sum(s.rows for s in planned.values() if (s.config, s.split) == (config, split))
        findings["counts"].checked += 1
        if found != expected:
            findings["counts"].fail(f"{config}/{split} has {found:,} readable rows, expected {expected:,}")
    stray = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet")} - planned.keys()
    findings["shards"].fail(
        *(f"{name} is in the folder but not in build.json; remove it" for name in sorted(stray))
    )
    return shards


def _entries(listed: list[Any], planned: dict[str, Shard], check: Check) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries of planned shards by path."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in listed:
        path = entry.get("path") if isinstance(entry, dict) else None
        shard = planned.get(path) if isinstance(path, str) else None
        if shard is None:
            check.fail(f"{repr(entry)[:100]} is no shard of such a build")
        elif shard.path in entries:
            check.fail(f"{path} is listed more than once")
        elif (entry.get("config"), entry.get("split")) != (shard.config, shard.split):
            check.fail(f"{path} is listed as {entry.get('config')!r}, split {entry.get('split')!r}")
        else:
            entries[shard.path] = entry
    check.fail(*(f"{path} is not listed" for path in planned if path not in entries))
    return entries


def _check_file(
    path: Path, name: str, entry: dict[str, Any], findings: Findings, schemas: dict[bool, pa.Schema]
) -> int | None:
    """Check one file, whose schema is that of rules or not; return its rows if it can be read."""
    check = findings["shards"]
    check.checked += 1
    if not path.is_file():
        check.fail(f"{name} is missing; {_AGAIN}")
        return None

    def same(what: str, found: object, key: str) -> bool:
        if found != entry.get(key):
            check.fail(f"{name} has {what} {found}, build.json says {entry.get(key)!r}; {_AGAIN}")
        return found == entry.get(key)

    if same("bytes", path.stat().st_size, "bytes"):
        same("SHA-256", file_digest(path), "sha256")
    try:
        schema, rows = pq.read_schema(path), pq.read_metadata(path).num_rows
        # Whoever wrote the manifest may have written the file: texts that are no UTF-8 would end the later stages.
        for batch in pq.ParquetFile(path).iter_batches():
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        check.fail(f"{name} is no readable parquet file ({str(error).splitlines()[0][:80]}); {_AGAIN}")
        return None
    same("rows", rows, "rows")
    findings["schema"].checked += 1
    problem = _schema_problem(schema, schemas[name.startswith("rules/")])
    if not problem and (holes := pq.read_table(path, columns=["id"]).column("id").null_count):
        problem = f"column id holds {holes:,} nulls"
    if problem:
        findings["schema"].fail(f"{name}: {problem}")
        return None
    return rows


def _schema_problem(found: pa.Schema, wanted: pa.Schema) -> str:
    if found.names != wanted.names:
        return f"columns {', '.join(found.names)}; expected {', '.join(wanted.names)}"
    for field in wanted:
        if found.field(field.name).type != field.type:
            return f"column {field.name} has type {found.field(field.name).type}, expected {field.type}"
    return ""
