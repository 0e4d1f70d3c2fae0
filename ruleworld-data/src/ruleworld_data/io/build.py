"""Write a benchmark to a folder of parquet shards: resumable, atomic, the same bytes for any number of workers.

The folder holds one sub-folder per configuration and, once complete, ``build.json``. A shard is written under a
temporary name and renamed, so a shard that is there is whole; a build that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .. import GENERATOR_VERSION
from ..generate import num_rows, question_table, rule_table
from ..questions.parallel import BLOCK_ROWS
from ..spec import QUESTION_SPLITS, RULE_SPLITS, SCALES, SUBTASKS, check_name, check_seed
from .files import file_digest, whole_file, write_whole
from .workers import start_worker

FORMAT = 1
MANIFEST = "build.json"
STARTED = ".build-started.json"
ROWS_PER_SHARD = BLOCK_ROWS
METADATA_KEY = "ruleworld"

_DICTIONARY = (  # columns worth a dictionary; ids, questions and whole rules are all different
    "type premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state trigger_attribute "
    "trigger_operator attribute operator amount in_paper world_id subtask answers.list.element "
    "answer_types.list.element steps.list.element.rule_ids.list.element steps.list.element.nl "
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

    @property
    def fingerprint(self) -> str:
        """What the file's metadata must say for the file to count as this shard."""
        return json.dumps({"generator": GENERATOR_VERSION, **asdict(self)}, sort_keys=True)

    def table(self) -> pa.Table:
        """Generate the rows, repeated strings dictionary-encoded."""
        if self.config == "rules":
            return rule_table(self.split, self.scale, self.seed, self.start, self.stop, encoded=True)
        return question_table(
            self.config, self.split, self.scale, self.seed, self.start, self.stop, encoded=True
        )


@dataclass(frozen=True)
class ShardDone:
    """A shard on disk."""

    shard: Shard
    digest: str
    size: int
    resumed: bool


def plan(scale: str, seed: int = 0) -> list[Shard]:
    """List the shards of a build, split by split."""
    check_name("scale", scale, SCALES)
    check_seed(seed)
    return list(_shards(scale, seed))


def _shards(scale: str, seed: int) -> Iterator[Shard]:
    tables = [("rules", split) for split in RULE_SPLITS]
    tables += [(subtask, split) for split in QUESTION_SPLITS for subtask in SUBTASKS]
    for config, split in tables:
        rows = num_rows(config, split, scale, seed)
        count = -(-rows // ROWS_PER_SHARD)
        for i in range(count):
            name = f"{config}/{split}-{i:05d}-of-{count:05d}.parquet"
            yield Shard(config, split, scale, seed, rows * i // count, rows * (i + 1) // count, name)


def build(
    out: str | Path,
    scale: str = "paper",
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[ShardDone, int, int], None] | None = None,
) -> dict[str, Any]:
    """Build a benchmark, or finish one that was interrupted.

    Parameters
    ----------
    out : path
        An empty, new or unfinished folder.
    scale, seed
        What to build.
    jobs : int
        Worker processes. They are spawned, so a script that asks for more than one needs the usual
        ``if __name__ == "__main__":``.
    progress : callable, optional
        Called after every shard with the shard, the number done and the total.

    Returns
    -------
    dict
        The manifest, as in ``build.json``.

    Raises
    ------
    ValueError
        For a bad argument or a folder that holds something else.
    """
    shards = plan(scale, seed)
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a positive integer, got {jobs!r}")
    out = Path(out)
    spec = {"format": FORMAT, "generator_version": GENERATOR_VERSION, "scale": scale, "seed": seed}
    _claim(out, spec)
    known = _known_digests(out)
    done: list[ShardDone] = []
    for result in _run(shards, out, jobs, known):
        done.append(result)
        if progress:
            progress(result, len(done), len(shards))
    done.sort(key=lambda result: shards.index(result.shard))
    manifest = spec | {
        "shards": [
            {
                "path": r.shard.path,
                "config": r.shard.config,
                "split": r.shard.split,
                "rows": r.shard.stop - r.shard.start,
                "bytes": r.size,
                "sha256": r.digest,
            }
            for r in done
        ]
    }
    write_whole(out / MANIFEST, _json(manifest))
    (out / STARTED).unlink(missing_ok=True)
    return manifest


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read ``build.json``.

    Raises
    ------
    FileNotFoundError
        If the folder is no build, or an unfinished one.
    ValueError
        If the file is damaged.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / STARTED).is_file():
            raise FileNotFoundError(f"{folder} is an unfinished build; finish it with: {_command(folder)}")
        raise FileNotFoundError(
            f"{folder} holds no {MANIFEST}, so it is no build; make one with: ruleworld build --out {folder}"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or not isinstance(manifest["shards"], list):
            raise KeyError("format")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); build the folder again") from None
    return manifest


def read_build(folder: str | Path) -> dict[str, Any]:
    """Read a build that is to be used: ``build.json``, checked against the plan, and every shard's bytes against it.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If it was made by another generator, or anything in it was changed; the text says what to do.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("generator_version") != GENERATOR_VERSION:
        raise ValueError(
            f"{folder} was made by generator {manifest.get('generator_version')!r}, this is {GENERATOR_VERSION}; build "
            "it again in a new folder"
        )
    planned = plan(manifest.get("scale", ""), manifest.get("seed", -1))
    expected = [(shard.path, shard.config, shard.split, shard.stop - shard.start) for shard in planned]
    keys = ("path", "config", "split", "rows")
    listed = [tuple(s.get(k) for k in keys) if isinstance(s, dict) else s for s in manifest["shards"]]
    if listed != expected:
        wrong = next(
            (a for a, b in zip(listed, expected, strict=False) if a != b), "too few or too many shards"
        )
        raise ValueError(f"{folder / MANIFEST} does not list the shards of such a build ({wrong}); {_AGAIN}")
    for shard in manifest["shards"]:
        path = folder / shard["path"]
        if not path.is_file():
            raise ValueError(f"shard {path} is missing; {_AGAIN}")
        if file_digest(path) != shard.get("sha256"):
            raise ValueError(f"shard {path} was changed since it was built; {_AGAIN}")
    return manifest


_AGAIN = (
    "run ruleworld build on the folder again (it makes only what is damaged), or ruleworld verify to see more"
)


def _command(folder: Path) -> str:
    """Return the command that finishes an unfinished build."""
    try:
        spec = json.loads((folder / STARTED).read_text(encoding="utf-8"))
        return f"ruleworld build --out {folder} --scale {spec['scale']} --seed {spec['seed']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"ruleworld build --out {folder}"


def _claim(out: Path, spec: dict[str, Any]) -> None:
    """Make sure that the folder is ours to write: new, empty, or a build of the same thing."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a new or empty folder")
    for name in (MANIFEST, STARTED):
        if (out / name).is_file():
            try:
                there = json.loads((out / name).read_text(encoding="utf-8"))
                found = {key: there.get(key) for key in spec}
            except (ValueError, AttributeError):
                raise ValueError(f"{out / name} is damaged; remove the folder or choose another") from None
            if found != spec:
                differs = ", ".join(
                    f"{k} {found[k]!r} (wanted {spec[k]!r})" for k in spec if found[k] != spec[k]
                )
                raise ValueError(f"{out} holds another build: {differs}; choose another folder")
            break
    else:
        for leftover in out.glob(".build*.tmp"):
            leftover.unlink()
        if out.is_dir() and any(out.iterdir()):
            raise ValueError(f"{out} is not empty and holds no build; choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    for leftover in [*out.glob("*/.*.tmp"), *out.glob(".build*.tmp")]:
        leftover.unlink()
    if not (out / MANIFEST).is_file():
        write_whole(out / STARTED, _json(spec))


def _known_digests(out: Path) -> dict[str, str]:
    """Return the digests of a finished build's shards, so that a damaged one is made again."""
    if not (out / MANIFEST).is_file():
        return {}
    shards = [shard for shard in read_manifest(out)["shards"] if isinstance(shard, dict)]
    return {str(shard.get("path")): str(shard.get("sha256")) for shard in shards}


def _run(shards: list[Shard], out: Path, jobs: int, known: dict[str, str]) -> Iterator[ShardDone]:
    if jobs == 1:
        for shard in shards:
            yield make_shard(shard, out, known.get(shard.path))
        return
    # Spawned, so that no worker inherits locks of Arrow's threads.
    with ProcessPoolExecutor(
        min(jobs, len(shards)), mp_context=get_context("spawn"), initializer=start_worker
    ) as executor:
        futures = [executor.submit(make_shard, shard, out, known.get(shard.path)) for shard in shards]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def make_shard(shard: Shard, out: Path, known: str | None = None) -> ShardDone:
    """Write one shard, unless it is there already and, where its digest is known, undamaged."""
    path = out / shard.path
    if _is_whole(path, shard):
        digest = file_digest(path)
        if known in (None, digest):
            return ShardDone(shard, digest, path.stat().st_size, True)
    path.parent.mkdir(parents=True, exist_ok=True)
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
        writer.write_table(table, row_group_size=ROWS_PER_SHARD)
        writer.add_key_value_metadata({METADATA_KEY: shard.fingerprint})
    return ShardDone(shard, file_digest(path), path.stat().st_size, False)


def _is_whole(path: Path, shard: Shard) -> bool:
    if not path.is_file():
        return False
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    saved = (metadata.metadata or {}).get(METADATA_KEY.encode(), b"").decode(errors="replace")
    return saved == shard.fingerprint and metadata.num_rows == shard.stop - shard.start


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
