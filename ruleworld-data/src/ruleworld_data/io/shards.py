"""Shards: the parquet files of a build, each known by what its metadata says."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..generate import table
from ..questions.parallel import BLOCK_ROWS, block_bounds
from ..spec import RULE_SPLITS, WorldSpec, splits_of, subtasks_of
from .schema import QUESTION_SCHEMA, rule_schema

METADATA_KEY = "ruleworld"

_DICTIONARY = (  # columns worth a dictionary; ids, questions and whole rules are all different
    "type premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state "
    "trigger_attribute trigger_operator threshold attribute operator amount in_paper world_id subtask "
    "answers.list.element answer_types.list.element steps.list.element.rule_ids.list.element steps.list.element.nl "
    "steps.list.element.fol steps.list.element.state gold_rule_ids.list.element facts.list.element "
    "queries.list.element skeleton template_id n_rules n_hops fold"
).split()
# Rules are sorted by premise, so each text shares a prefix with the one before.
_RULE_ENCODING = {"id": "DELTA_BINARY_PACKED", "nl": "DELTA_BYTE_ARRAY", "fol": "DELTA_BYTE_ARRAY"}


@dataclass(frozen=True)
class Shard:
    """Rows ``[start, stop)`` of one split of one configuration, and the file they go to."""

    config: str
    spec: WorldSpec
    start: int
    stop: int
    path: str

    @property
    def split(self) -> str:
        """Name of the split."""
        return self.spec.split

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def entry(self) -> dict[str, Any]:
        """What a manifest says of it, whatever its bytes are."""
        return {"path": self.path, "config": self.config, "split": self.split, "rows": self.rows}

    @property
    def fingerprint(self) -> str:
        """What the file's metadata must say for the file to count as this shard."""
        values = {name: value for name, value in vars(self).items() if name != "spec"} | self.spec.to_dict()
        return json.dumps(
            {"generator": values.pop("generator_version"), "split": self.split, **values}, sort_keys=True
        )

    def make(self) -> bytes:
        """Generate the rows and return the file."""
        rows = table(self.config, self.spec, self.start, self.stop, encoded=True)
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink,
            rows.schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name in _DICTIONARY if name.split(".")[0] in rows.column_names],
            column_encoding=_RULE_ENCODING if self.config == "rules" else {"id": "DELTA_BYTE_ARRAY"},
            dictionary_pagesize_limit=1 << 29,
            data_page_size=8 << 20,  # long pages: clauses recur, and zstd sees one page at a time
            write_statistics=False,
            store_schema=False,
        ) as writer:
            writer.write_table(rows, row_group_size=BLOCK_ROWS)
            writer.add_key_value_metadata({METADATA_KEY: self.fingerprint})
        return sink.getvalue().to_pybytes()

    def matches(self, file: Path | pa.NativeFile, shape: bool = True) -> bool:
        """Say whether a file's metadata say that it is this shard, and have its ``shape``; no page is looked at.

        Who writes some rows or columns of a shard again, keeps the metadata that name it.
        """
        try:
            found = pq.read_metadata(file)
            columns = found.schema.to_arrow_schema()
        except (pa.ArrowException, OSError):
            return False
        named = (found.metadata or {}).get(METADATA_KEY.encode()) == self.fingerprint.encode()
        schema = rule_schema(self.spec.dials) if self.config == "rules" else QUESTION_SCHEMA
        typed = (columns.names, columns.types) == (schema.names, schema.types)
        return named and (not shape or (found.num_rows == self.rows and typed))


def plan(spec: WorldSpec) -> list[Shard]:
    """List the shards of a build of all splits, split by split."""
    tables = [("rules", split) for split in RULE_SPLITS]
    tables += [(subtask, split) for split in splits_of(spec.version) for subtask in subtasks_of(spec.dials)]
    shards = []
    for config, split in tables:
        own = replace(spec, split=split)
        bounds = block_bounds(own.num_rows(config))
        for i, (start, stop) in enumerate(bounds):
            path = f"{config}/{split}-{i:05d}-of-{len(bounds):05d}.parquet"
            shards.append(Shard(config, own, start, stop, path))
    return shards


def read_shard(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a shard, whole or some columns, of a build that `read_build` has checked."""
    return pq.ParquetFile(path).read(columns=columns)
