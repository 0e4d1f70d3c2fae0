"""The board as data: one row per accepted submission, every number recomputed from its samples.

Two tables: *answers*, ranked by exact match, and *retrieval*, ranked by Recall@1, of methods that only find rules.
Ranks are within a cell: world, split, sub-tasks, representation and pool size. Numbers of different pool sizes are
never averaged. Floors and ceilings frame a cell and have no rank.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report.setting import macro
from ..score.samples import Sample
from ..score.scoring import ANSWER_METRICS, RECALLS
from ..score.stats import DRAWS, Floats, codes, group_means, interval, row_means, sample_clusters
from .files import submission_folders
from .judge import Judge
from .validate import Submission, validate_all

SCHEMA_VERSION = 1
METRICS = (*ANSWER_METRICS, *RECALLS)
TRACKS = {"answers": "exact_match", "retrieval": "recall@1"}
"""Table -> the metric that it is ranked by."""
REPRODUCED = "reproduced.json"
CELL = ("scale", "split", "subtasks", "representation", "pool_size")

Row = dict[str, Any]


def build_board(root: Path, rounds: Path | None = None) -> dict[str, Any]:
    """Return the content of board.json.

    Parameters
    ----------
    root : Path
        Folder of submissions; it may be empty.
    rounds : Path, optional
        Folder of sealed rounds; scores in it become a column.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If a submission is refused, or a mark of reproduction is for other samples.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; give the folder that holds submissions")
    found = validate_all(submission_folders(root), Judge())
    rows = [row_of(submission) for submission in found]
    reproduced = _reproduced(root.parent / REPRODUCED, rows)
    sealed = _sealed(rounds)
    _rank(rows, found)
    for row in rows:
        name = row["submission"]
        row["sealed"] = sealed.get(name)
        row["badges"] += ["reproduced"] * (name in reproduced) + ["sealed round"] * (name in sealed)
    rows.sort(key=lambda row: (row["track"], order(row, TRACKS[row["track"]])))
    return {"schema_version": SCHEMA_VERSION, "metrics": list(METRICS), "tracks": TRACKS, "rows": rows}


def row_of(submission: Submission) -> Row:
    """Return what the board shows of a submission; ranks and badges follow when all rows are known."""
    spec, results, words = submission.spec, submission.results, submission.metadata
    usage = results["usage"]
    means = {name: value["mean"] for name, value in usage.items()}
    logged = usage["cost_usd"]["total"] if "cost_usd" in usage else None
    tokens = [means[name] for name in ("prompt_tokens", "completion_tokens") if name in means]
    copied = ("name", "submitter", "date", "kind", "trained", "open_weights", "model", "description")
    return {
        "submission": submission.folder,
        "track": track_of(submission),
        **{name: getattr(words, name) for name in copied},
        "links": {name: link for name in ("code", "paper") if (link := getattr(words, name))},
        "scale": spec.scale,
        "split": spec.split,
        "subtasks": list(spec.subtasks),
        "representation": spec.representation,
        "pool_size": spec.pool_size,
        "n": results["n"]["scored"],
        "metrics": {name: macro(results, name) for name in METRICS},
        "cost_usd": logged if words.cost_usd is None else words.cost_usd,
        "tokens": sum(tokens) if tokens else None,
        "calls": means.get("calls"),
        "hardware": words.hardware,
        "rank": None,
        "sealed": None,
        "badges": ["re-scored"],
        "run_id": results["run_id"],
        "samples_sha256": results["samples_sha256"],
    }


def track_of(submission: Submission) -> str:
    """Return the table that a submission belongs to."""
    return "answers" if macro(submission.results, "exact_match") else "retrieval"


def cell_of(row: Row) -> tuple[Any, ...]:
    """Return the values that rows must share to be compared; the order of sub-tasks is none of them."""
    return tuple(tuple(sorted(row[name])) if name == "subtasks" else row[name] for name in CELL)


def order(row: Row, metric: str) -> tuple[Any, ...]:
    """Return what rows are sorted by: cell, largest world, pool and set of sub-tasks first; in it best first."""
    estimate = row["metrics"][metric]
    world = (row["scale"] != "paper", row["scale"], row["split"])
    cell = (*world, -len(row["subtasks"]), sorted(row["subtasks"]), -row["pool_size"], row["representation"])
    return (*cell, -(estimate["value"] if estimate else -1), row["submission"])


def bootstrap_draws(samples: Sequence[Sample], metric: str) -> Floats:
    """Return the macro average of a metric in every bootstrap draw, shape (draws,).

    Two submissions on the same questions get the same draws, so the difference of their arrays is the paired
    bootstrap of `rwbench.score.stats.paired_difference`.
    """
    samples = sorted(samples, key=lambda sample: sample["id"])
    values = np.array([sample["scores"][metric] for sample in samples], dtype=np.float64)
    group_of, _ = codes([sample["subtask"] for sample in samples])
    cluster_of, _ = codes(sample_clusters(samples))
    return row_means(group_means(values, group_of, cluster_of, DRAWS))


def ranks(draws: Sequence[Floats]) -> list[int]:
    """Return the rank of each submission of a cell: one more than the number that is significantly better.

    Better is whose paired 95 % interval of the difference lies above zero.

    Parameters
    ----------
    draws : sequence of ndarray
        `bootstrap_draws` of each, over the same questions.
    """
    return [1 + sum(_is_better(other - own) for other in draws) for own in draws]


def _is_better(difference: Floats) -> bool:
    # The mean answers for most pairs: the quantiles of ten thousand numbers are what takes the time.
    return bool(difference.mean() > 0) and (bool(difference.min() > 0) or interval(difference)[0] > 0)


def _rank(rows: Sequence[Row], found: Sequence[Submission]) -> None:
    """Set the rank of every contender within its table and cell."""
    cells: dict[tuple[Any, ...], list[tuple[Row, Floats]]] = {}
    for row, submission in zip(rows, found, strict=True):
        if row["kind"] == "contender":
            draws = bootstrap_draws(submission.samples, TRACKS[row["track"]])
            cells.setdefault((row["track"], *cell_of(row)), []).append((row, draws))
    for members in cells.values():
        for (row, _), rank in zip(members, ranks([draws for _, draws in members]), strict=True):
            row["rank"] = rank


def _reproduced(path: Path, rows: Sequence[Row]) -> set[str]:
    """Return the submissions that maintainers ran again; the mark is for the very samples that they compared."""
    marks = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    have = {row["submission"]: row["samples_sha256"] for row in rows}
    for name, mark in marks.items():
        if have.get(name) != mark["samples_sha256"]:
            raise ValueError(
                f"{path} marks {name} with samples {mark['samples_sha256'][:12]}, the board has "
                f"{str(have.get(name))[:12]}; run the comparison again or remove the mark"
            )
    return set(marks)


def _sealed(rounds: Path | None) -> dict[str, dict[str, Any]]:
    """Return the newest sealed score of each submission, by folder name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(rounds.glob("*/scores.json")) if rounds is not None else ():
        for score in json.loads(path.read_text(encoding="utf-8"))["scores"]:
            if score["public"] is not None:
                found[score["public"]] = {"round": path.parent.name, **score}
    return found
