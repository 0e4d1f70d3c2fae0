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
    entries = _entries(manifest["shards"], planned, findings["manifest"])
    shards, rows, expected = [], Counter[str](), Counter[str]()
    for done, (path, entry) in enumerate(entries.items(), start=1):
        if _check_file(folder / path, planned[path], entry, findings):
            shards.append(planned[path])
            rows[f"{planned[path].config}/{planned[path].split}"] += pq.read_metadata(folder / path).num_rows
        progress("files", done, len(entries))
    for shard in planned.values():
        expected[f"{shard.config}/{shard.split}"] += shard.rows
    findings["counts"].checked += len(expected)
    findings["counts"].fail(
        *(
            f"{name} has {rows[name]:,} readable rows, expected {count:,}"
            for name, count in expected.items()
            if rows[name] != count
        )
    )
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


def _check_file(path: Path, shard: Shard, entry: dict[str, Any], findings: Findings) -> bool:
    """Check one file; return whether it can be read."""
    check, name = findings["shards"], shard.path
    check.checked += 1
    if not path.is_file():
        check.fail(f"{name} is missing; {_AGAIN}")
        return False
    facts: dict[str, object] = {"bytes": path.stat().st_size}
    if facts["bytes"] == entry.get("bytes"):
        facts["SHA-256"] = file_digest(path)
    damage, holes = "", 0
    try:
        with pq.ParquetFile(path) as file:
            schema, facts["rows"] = file.schema_arrow, file.metadata.num_rows
            # Whoever wrote the manifest may have written the file: texts that are no UTF-8 would end the later stages.
            for batch in file.iter_batches():
                batch.validate(full=True)
                holes += batch.column(0).null_count
    except (pa.ArrowException, OSError, ValueError) as error:
        damage = f"{name} is no readable parquet file ({str(error).splitlines()[0][:80]}); {_AGAIN}"
    for what, value in facts.items():
        said = entry.get(what.lower().replace("-", ""))
        if value != said:
            check.fail(f"{name} has {what} {value}, build.json says {said!r}; {_AGAIN}")
    if damage:
        check.fail(damage)
        return False
    wanted = rule_schema(shard.dials) if shard.config == "rules" else QUESTION_SCHEMA
    has, needs = ([(field.name, field.type) for field in columns] for columns in (schema, wanted))
    findings["schema"].checked += 1
    if has != needs:
        spelt = (", ".join(f"{name} {kind}" for name, kind in columns) for columns in (has, needs))
        findings["schema"].fail(f"{name}: columns {'; expected '.join(spelt)}")
    elif holes:
        findings["schema"].fail(f"{name}: column id holds {holes:,} nulls")
    return has == needs and not holes
