"""The check of the files: whoever wrote the manifest, which has their digests, may have written them as well."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..io.schema import QUESTION_SCHEMA, rule_schema
from ..io.shards import Shard
from .report import Check, StageProgress


def check_files(folder: Path, shards: list[Shard], check: Check, progress: StageProgress) -> None:
    """Check that every shard can be read and has the columns, types and rows that it should have."""
    for done, shard in enumerate(shards, start=1):
        check.checked += 1
        if problem := _problem(folder / shard.path, shard):
            check.fail(f"{shard.path}: {problem}")
        progress("files", done, len(shards))


def _problem(path: Path, shard: Shard) -> str:
    rows, holes = 0, 0
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            for batch in file.iter_batches():
                batch.validate(full=True)  # texts that are no UTF-8 would end the later stages
                rows, holes = rows + len(batch), holes + batch.column(0).null_count
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"no readable parquet file ({str(error).splitlines()[0][:80]})"
    wanted = rule_schema(shard.dials) if shard.config == "rules" else QUESTION_SCHEMA
    has, needs = ([(field.name, field.type) for field in columns] for columns in (schema, wanted))
    if has != needs:
        spelt = (", ".join(f"{name} {kind}" for name, kind in columns) for columns in (has, needs))
        return f"columns {'; expected '.join(spelt)}"
    if holes:
        return f"column id holds {holes:,} nulls"
    return f"{rows:,} rows, expected {shard.rows:,}" if rows != shard.rows else ""
