"""The board as data: one row per accepted submission, every number recomputed from its samples.

Two tables: *answers*, ranked by exact match, and *retrieval*, ranked by Recall@1, of methods that only find rules.
Ranks are within a cell: world, split, sub-tasks, representation and pool size. Numbers of different pool sizes are
never averaged. Floors and ceilings frame a cell and have no rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from ..report.setting import macro
from ..score.results import Estimate
from ..score.samples import STRICT, Sample
from ..score.scoring import ANSWER_METRICS, RECALLS
from ..score.stats import DRAWS, LEVEL, Floats, codes, interval, resamples, row_means, sample_clusters
from ..spec import in_words
from .copies import CELL, cell_of
from .files import submission_folders
from .judge import Judge
from .parsing import Refused
from .validate import Submission, check_all

SCHEMA_VERSION = 1
METRICS = (*ANSWER_METRICS, *RECALLS)
TRACKS = {"answers": "exact_match", "retrieval": "recall@1"}
"""Table -> the metric that it is ranked by."""
REPRODUCED = "reproduced.json"
BLOCK = 50
"""Submissions whose draws are made at once."""

Row = dict[str, Any]


@with_config(STRICT)
class Mark(TypedDict):
    """What stands in `REPRODUCED` of a submission: the samples that were compared, and when."""

    samples_sha256: str
    date: str


@with_config(STRICT)
class SealedScore(TypedDict):
    """What a round found of one submission; ``drop`` is public minus sealed with its interval."""

    public: str
    metric: str
    public_score: Estimate
    sealed_score: Estimate
    drop: dict[Literal["value", "ci_low", "ci_high"], float]


@with_config(STRICT)
class Scores(TypedDict):
    """scores.json of a round."""

    round: str
    seed: int
    scores: list[SealedScore]


def build_board(root: Path, rounds: Path | None = None) -> dict[str, Any]:
    """Return the content of board.json, from a folder of submissions; scores in a folder of sealed rounds are a column.

    A ValueError if a submission is refused, or a mark of reproduction is for other samples.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; give the folder that holds submissions")
    found = []
    for name, checked in check_all(submission_folders(root), Judge()).items():
        if isinstance(checked, Refused):
            raise ValueError(f"{name} is refused:\n{checked}")
        found.append(checked)
    rows = [row_of(submission) for submission in found]
    reproduced = _reproduced(root, rows)
    sealed = _sealed(rounds)
    _rank(rows, found)
    for row in rows:
        name = row["submission"]
        row["sealed"] = sealed.get(name)
        row["badges"] = ["reproduced by us"] * (name in reproduced) + ["sealed round"] * (name in sealed)
        row["badges"] = row["badges"] or ["claimed"]
    rows.sort(key=lambda row: (row["track"], order(row, TRACKS[row["track"]])))
    return {"schema_version": SCHEMA_VERSION, "metrics": list(METRICS), "tracks": TRACKS, "rows": rows}


def row_of(submission: Submission) -> Row:
    """Return what the board shows of a submission; ranks and badges follow when all rows are known."""
    spec, results, words = submission.spec.to_dict(), submission.results, submission.metadata
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
        **{name: spec[name] for name in CELL},
        "n": results["n"]["scored"],
        "metrics": {name: macro(results, name) for name in METRICS},
        "cost_usd": logged if words.cost_usd is None else words.cost_usd,
        "tokens": sum(tokens) if tokens else None,
        "calls": means.get("calls"),
        "hardware": words.hardware,
        "rank": None,
        "sealed": None,
        "badges": [],
        "run_id": results["run_id"],
        "samples_sha256": results["samples_sha256"],
    }


def track_of(submission: Submission) -> str:
    """Return the table that a submission belongs to."""
    return "answers" if macro(submission.results, "exact_match") else "retrieval"


def order(row: Row, metric: str) -> tuple[Any, ...]:
    """Return what rows are sorted by: cell, largest world, pool and set of sub-tasks first; in it best first."""
    estimate = row["metrics"][metric]
    world = (row["scale"] != "paper", row["scale"], row["split"])
    cell = (*world, -len(row["subtasks"]), sorted(row["subtasks"]), -row["pool_size"], row["representation"])
    return (*cell, -(estimate["value"] if estimate else -1), row["submission"])


def bootstrap_draws(members: Sequence[Sequence[Sample]], metric: str) -> Floats:
    """Return the macro average of a metric in every bootstrap draw, shape (submissions, draws).

    The submissions answer the same questions, and a draw is the same for all, so the difference of two rows is the
    paired bootstrap of `rwbench.score.stats.paired_difference`.
    """
    ordered = [sorted(samples, key=lambda sample: sample["id"]) for samples in members]
    group_of, groups = codes([sample["subtask"] for sample in ordered[0]])
    cluster_of, clusters = codes(sample_clusters(ordered[0]))
    shape = (len(clusters), len(groups))
    weights = resamples(len(clusters), DRAWS)

    def sums(values: Sequence[float]) -> Floats:
        cell = cluster_of * len(groups) + group_of
        found = np.bincount(cell, weights=np.asarray(values, dtype=np.float64), minlength=shape[0] * shape[1])
        return found.astype(np.float64).reshape(shape)

    counts = weights @ sums([1.0] * len(group_of))  # (draws, groups)
    out = np.empty((len(ordered), DRAWS))
    for start in range(0, len(ordered), BLOCK):
        block = ordered[start : start + BLOCK]
        values = [sums([sample["scores"][metric] for sample in samples]) for samples in block]
        # A draw may miss a small sub-task: no number there, and none in the mean.
        with np.errstate(invalid="ignore"):
            for row, totals in enumerate(np.split(weights @ np.hstack(values), len(block), axis=1), start):
                out[row] = row_means(totals / counts)
    return out


def ranks(draws: Floats) -> list[int]:
    """Return the rank of each submission of a cell: one more than the number that is significantly better.

    Better is whose paired 95 % interval of the difference lies above zero.

    Parameters
    ----------
    draws : ndarray, shape (submissions, draws)
        From `bootstrap_draws`.
    """
    best_first = np.argsort(-draws.mean(1), kind="stable")
    draws = draws[best_first]
    # The interval's lower end lies between two of the sorted differences: it is above zero if the first of them is,
    # and not if the second is not. Counting is a hundred times faster than finding quantiles.
    below = int((1 - LEVEL) / 2 * (draws.shape[1] - 1))
    found = np.empty(len(draws), dtype=int)
    for place, own in enumerate(draws):
        losses = np.count_nonzero(draws[:place] <= own, axis=1)
        close = [interval(draws[other] - own)[0] > 0 for other in np.flatnonzero(losses == below + 1)]
        found[best_first[place]] = 1 + np.count_nonzero(losses <= below) + sum(close)
    return found.tolist()


def _rank(rows: Sequence[Row], found: Sequence[Submission]) -> None:
    """Set the rank of every contender within its table and cell."""
    cells: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(rows):
        if row["kind"] == "contender":
            cells.setdefault((row["track"], *cell_of(row)), []).append(number)
    for (track, *_), members in cells.items():
        draws = bootstrap_draws([found[number].samples for number in members], TRACKS[track])
        for number, rank in zip(members, ranks(draws), strict=True):
            rows[number]["rank"] = rank


def read_marks(root: Path) -> dict[str, Mark]:
    """Return the marks of reproduction beside a folder of submissions; a ValueError if the file is none."""
    path = root.parent / REPRODUCED
    try:
        return TypeAdapter(dict[str, Mark]).validate_json(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(
            f"{path} is no list of marks ({in_words(error)}); write it with `rwbench reproduced RUNS`"
        ) from None


def _reproduced(root: Path, rows: Sequence[Row]) -> set[str]:
    """Return the submissions that maintainers ran again; the mark is for the very samples that they compared."""
    marks = read_marks(root)
    have = {row["submission"]: row["samples_sha256"] for row in rows}
    for name, mark in marks.items():
        if have.get(name) != mark["samples_sha256"]:
            raise ValueError(
                f"{root.parent / REPRODUCED} marks {name} with samples {mark['samples_sha256'][:12]}, the board has "
                f"{str(have.get(name))[:12]}; run it again and type: rwbench reproduced RUNS"
            )
    return set(marks)


def _sealed(rounds: Path | None) -> dict[str, dict[str, Any]]:
    """Return the newest sealed score of each submission, by folder name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(rounds.glob("*/scores.json")) if rounds is not None else ():
        try:
            scores = TypeAdapter(Scores).validate_json(path.read_bytes())["scores"]
        except ValueError as error:
            raise ValueError(
                f"{path} is no round's scores ({in_words(error)}); type: rwbench round score {path.parent}"
            ) from None
        for score in scores:
            found[score["public"]] = {"round": path.parent.name, **score}
    return found
