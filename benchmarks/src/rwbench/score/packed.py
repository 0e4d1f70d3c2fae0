"""Runs as a repository carries them: two files a folder, of what scores and statistics need.

``results.jsonl.zst``
    Every run's results, one a line.
``samples.parquet``
    A row per question and run: what was written, and at which rank of each search each gold rule came. Traces, other
    rules that were found, times and measures (whose means are among the results) are left out; running the recipe again
    makes them.

A packed run is addressed like the folder of a run, as ``FOLDER/RUN_ID``.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic_core import from_json
from ruleworld_data.io import write_whole

from ..spec import in_words
from .samples import VOLATILE_USAGE, Sample
from .scoring import gold_of, score

PACKED_RESULTS, PACKED_SAMPLES = "results.jsonl.zst", "samples.parquet"
UNKNOWN_RULE = -1
"""Stands in a packed ranking for every rule that is not gold."""
ZSTD_LEVEL, BROTLI_LEVEL = 19, 11
SAME = ("id", "subtask", "world_id", "fold", "gold_answers", "gold_rules", "output", "answers", "error")
"""Fields of a sample that are columns as they are; the first six are the question's."""


def is_packed(folder: Path) -> bool:
    """Whether a folder holds packed runs."""
    return (folder / PACKED_SAMPLES).is_file()


def write_packed(folder: Path, runs: Sequence[tuple[Mapping[str, Any], Sequence[Sample]]]) -> None:
    """Write runs, each with its samples, into a folder; the same runs give the same bytes."""
    runs = sorted(runs, key=lambda run: run[0]["run_id"])
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        _row(sample, results["run_id"], place)
        for results, samples in runs
        for place, sample in enumerate(samples)
    ]
    # Answers to one question are alike, so side by side they compress best.
    rows.sort(key=lambda row: (row["id"], row["run_id"]))
    body = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist(rows),
        body,
        compression="brotli",  # texts are a twentieth smaller than in zstd, and read as fast
        compression_level=BROTLI_LEVEL,
        use_dictionary=[name for name in rows[0] if name != "output"],
        data_page_size=2**23,
    )
    write_whole(folder / PACKED_SAMPLES, body.getvalue().to_pybytes())
    lines = "".join(json.dumps(results, ensure_ascii=False, allow_nan=False) + "\n" for results, _ in runs)
    write_whole(folder / PACKED_RESULTS, pa.Codec("zstd", ZSTD_LEVEL).compress(lines.encode(), asbytes=True))


def packed_results(folder: Path, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the results of all runs that a folder holds, or of one, unchecked; a ValueError if a file is damaged."""
    path = folder / PACKED_RESULTS
    try:
        runs = _runs(path, path.stat().st_mtime_ns)
        return [run for run in runs if run_id in (None, run["run_id"])]
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise ValueError(
            f"{folder} is no folder of packed runs ({in_words(error)}); remove it and pack them again: "
            f"rwbench report RUNS --pack {folder}"
        ) from None


def packed_samples(folder: Path, results: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a packed run, scored anew from what is kept."""
    path = folder / PACKED_SAMPLES
    table = _table(path, path.stat().st_mtime_ns)
    rows = table.filter(pc.equal(table["run_id"], results["run_id"])).sort_by("place").to_pylist()
    return [_sample(row, results["spec"]["pool_size"]) for row in rows]


def _row(sample: Sample, run_id: str, place: int) -> dict[str, Any]:
    scores, searches, gold = sample["scores"], sample["retrieved"], gold_of(sample)
    usage = {name: value for name, value in sample.get("usage", {}).items() if name not in VOLATILE_USAGE}
    return {
        **{name: sample[name] for name in SAME},  # type: ignore[literal-required]
        "run_id": run_id,
        "place": place,  # clusters are drawn in the order of the samples
        "ranks": None if searches is None else [_ranks(ranked, gold) for ranked in searches],
        "stepwise": "step_recall@1" in scores,
        "outcome": sample.get("outcome", "ok" if sample["error"] is None else "failed"),
        "usage": usage or None,
    }


def _sample(row: Mapping[str, Any], pool_size: int) -> Sample:
    gold = gold_of(row)
    searches = None if row["ranks"] is None else [_ranking(ranks, gold) for ranks in row["ranks"]]
    sample: Any = {name: row[name] for name in SAME} | {"retrieved": searches}
    return sample | {
        "scores": score(sample, pool_size, row["stepwise"]) if row["error"] is None else {},
        "outcome": row["outcome"],
        "trace": [],
        "measures": {},
        "usage": {name: value for name, value in (row["usage"] or {}).items() if value is not None},
        "seconds": 0.0,
    }


def _ranks(ranked: Sequence[int], gold: Sequence[int]) -> list[int]:
    """Return the rank of each gold rule in one search, from 1; 0 where it was not found."""
    return [ranked.index(rule) + 1 if rule in ranked else 0 for rule in gold]


def _ranking(ranks: Sequence[int], gold: Sequence[int]) -> list[int]:
    """Return what `_ranks` was made of, as far as it says."""
    ranked = [UNKNOWN_RULE] * max(ranks)
    for rank, rule in zip(ranks, gold, strict=True):
        if rank:
            ranked[rank - 1] = rule
    return ranked


@lru_cache(maxsize=2)
def _runs(path: Path, changed: int) -> list[dict[str, Any]]:
    """Return the runs of a file as it was then; each is looked up once more, with its samples."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as file:
        return [from_json(line) for line in file.read().splitlines()]


@lru_cache(maxsize=2)
def _table(path: Path, changed: int) -> pa.Table:
    """Return the table of a file as it was then: all runs of a folder are read one after another."""
    return pq.read_table(path)
