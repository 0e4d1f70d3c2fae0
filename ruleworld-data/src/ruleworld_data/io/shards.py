"""Shards: the parquet files of a build, each written whole or not at all, and known by what its metadata says."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..generate import num_rows, question_table, rule_table
from ..questions.parallel import BLOCK_ROWS
from ..spec import PAPER_POINT, QUESTION_SPLITS, RULE_SPLITS, VERSION, Dials, WorldSpec, subtasks_of
from .files import file_digest, whole_file

METADATA_KEY = "ruleworld"

_DICTIONARY = (  # columns worth a dictionary; ids, questions and whole rules are all different
    "type premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state "
    "trigger_attribute trigger_operator threshold attribute operator amount in_paper world_id subtask "
    "answers.list.element answer_types.list.element steps.list.element.rule_ids.list.element steps.list.element.nl "
    "steps.list.element.fol steps.list.element.state gold_rule_ids.list.element facts.list.element "
    "queries.list.element skeleton template_id n_rules n_hops fold"
).split()
_RULE_ENCODING = {"id": "DELTA_BINARY_PACKED", "nl": "DELTA_BYTE_ARRAY", "fol": "DELTA_BYTE_ARRAY"}
"""Rules are sorted by premise, so each text shares a prefix with the one before."""


@dataclass(frozen=True)
class Shard:
    """Rows ``[start, stop)`` of one split of one configuration, and the file they go to."""

    config: str
    split: str
    scale: str
    seed: int
    start: int
    stop: int
    path: str
    version: str = VERSION
    dials: Dials = PAPER_POINT

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def fingerprint(self) -> str:
        """What the file's metadata must say for the file to count as this shard."""
        said = asdict(self) | {"dials": self.dials.to_dict()}
        if not said["dials"]:
            del said["dials"]
        return json.dumps({"generator": f"{said.pop('version')}.0", **said}, sort_keys=True)

    def table(self) -> pa.Table:
        """Generate the rows, repeated strings dictionary-encoded."""
        place = (self.split, self.scale, self.seed, self.start, self.stop)
        made: dict[str, Any] = {"version": self.version, "dials": self.dials, "encoded": True}
        if self.config == "rules":
            return rule_table(*place, **made)
        return question_table(self.config, *place, **made)

    def is_whole(self, folder: Path) -> bool:
        """Say whether the file is there and says that it is this shard; its pages are not looked at."""
        try:
            found = pq.read_metadata(folder / self.path)
        except (pa.ArrowException, OSError):
            return False
        written = (found.metadata or {}).get(METADATA_KEY.encode(), b"").decode(errors="replace")
        return written == self.fingerprint and found.num_rows == self.rows


def parse_shard(text: str) -> tuple[int, int]:
    """Read which part of some work is asked for, ``i/n``: every n-th unit from the i-th on; nothing is all, ``1/1``.

    Examples
    --------
    >>> parse_shard("2/16"), parse_shard("")
    ((2, 16), (1, 1))
    """
    number, _, total = text.partition("/") if text else ("1", "/", "1")
    if number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise ValueError(f"--shard must be i/n with 1 <= i <= n, such as 2/16, got {text!r}")


@dataclass(frozen=True)
class ShardFile:
    """A shard on disk: SHA-256 and size in bytes; ``resumed`` if it was there already."""

    shard: Shard
    digest: str
    size: int
    resumed: bool


def plan(scale: str, seed: int = 0, version: str = VERSION, dials: Dials = PAPER_POINT) -> list[Shard]:
    """List the shards of a build, split by split."""
    WorldSpec(scale, seed=seed, version=version, dials=dials)
    tables = [("rules", split) for split in RULE_SPLITS]
    tables += [(subtask, split) for split in QUESTION_SPLITS for subtask in subtasks_of(dials)]
    shards = []
    for config, split in tables:
        rows = num_rows(config, split, scale, seed, version=version, dials=dials)
        count = -(-rows // BLOCK_ROWS)
        for i in range(count):
            path = f"{config}/{split}-{i:05d}-of-{count:05d}.parquet"
            start, stop = rows * i // count, rows * (i + 1) // count
            shards.append(Shard(config, split, scale, seed, start, stop, path, version, dials))
    return shards


def make_shard(shard: Shard, folder: Path, known: str | None = None) -> ShardFile:
    """Write one shard, unless it is there already and, where its digest is known, undamaged."""
    path = folder / shard.path
    if shard.is_whole(folder):
        digest = file_digest(path)
        if known in (None, digest):
            return ShardFile(shard, digest, path.stat().st_size, resumed=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(shard, path)
    return ShardFile(shard, file_digest(path), path.stat().st_size, resumed=False)


def _write(shard: Shard, path: Path) -> None:
    table = shard.table()
    with (
        whole_file(path) as part,
        pq.ParquetWriter(
            part,
            table.schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name in _DICTIONARY if name.split(".")[0] in table.column_names],
            column_encoding=_RULE_ENCODING if shard.config == "rules" else {"id": "DELTA_BYTE_ARRAY"},
            dictionary_pagesize_limit=1 << 29,
            data_page_size=8 << 20,  # long pages: clauses recur, and zstd sees one page at a time
            write_statistics=False,
            store_schema=False,
        ) as writer,
    ):
        writer.write_table(table, row_group_size=BLOCK_ROWS)
        writer.add_key_value_metadata({METADATA_KEY: shard.fingerprint})


def read_shard(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a shard.

    Raises
    ------
    ValueError
        If it is missing or damaged.
    """
    try:
        return pq.ParquetFile(path).read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"cannot read shard {path} ({reason}); run ruleworld build on the folder again: it makes what is damaged"
        ) from None
