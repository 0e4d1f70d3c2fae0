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

from ..report.setting import macro
from ..score.scoring import ANSWER_METRICS, RECALLS
from ..spec import canonical_json
from .ranks import draws_of, ranks
from .rescore import Judge
from .submit import folders, validate_all
from .validate import Submission

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
    found = validate_all(folders(root), Judge())
    reproduced = _reproduced(root.parent / REPRODUCED, found)
    sealed = _sealed(rounds)
    rows = [row_of(submission) for submission in found]
    for row, place in zip(rows, _places(found), strict=True):
        row["rank"] = place
        row["badges"] += ["reproduced"] if row["submission"] in reproduced else []
        if row["submission"] in sealed:
            row["sealed"] = sealed[row["submission"]]
            row["badges"].append("sealed round")
    rows.sort(key=lambda row: (row["track"], order(row, TRACKS[row["track"]])))
    return {"schema_version": SCHEMA_VERSION, "metrics": list(METRICS), "tracks": TRACKS, "rows": rows}


def row_of(submission: Submission) -> Row:
    """Return what the board shows of a submission."""
    spec, results, words = submission.spec, submission.results, submission.metadata
    usage = results["usage"]
    cost = (
        words.cost_usd
        if words.cost_usd is not None
        else usage["cost_usd"]["total"]
        if "cost_usd" in usage
        else None
    )
    tokens = [usage[name]["mean"] for name in ("prompt_tokens", "completion_tokens") if name in usage]
    return {
        "submission": submission.folder,
        "track": track_of(submission),
        "name": words.name,
        "submitter": words.submitter,
        "date": words.date,
        "kind": words.kind,
        "trained": words.trained,
        "open_weights": words.open_weights,
        "model": words.model,
        "description": words.description,
        "links": {name: link for name in ("code", "paper") if (link := getattr(words, name))},
        "scale": spec.scale,
        "split": spec.split,
        "subtasks": list(spec.subtasks),
        "representation": spec.representation,
        "pool_size": spec.pool_size,
        "n": results["n"]["scored"],
        "metrics": {name: macro(results, name) for name in METRICS},
        "cost_usd": cost,
        "tokens": sum(tokens) if tokens else None,
        "calls": usage["calls"]["mean"] if "calls" in usage else None,
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


def _places(found: Sequence[Submission]) -> list[int | None]:
    """Return the rank of each submission within its cell, None for floors and ceilings."""
    cells: dict[str, list[int]] = {}
    for number, submission in enumerate(found):
        if submission.metadata.kind == "contender":
            spec = submission.spec.to_dict()
            key = canonical_json([track_of(submission), *(spec[name] for name in CELL)])
            cells.setdefault(key, []).append(number)
    places: list[int | None] = [None] * len(found)
    for members in cells.values():
        draws = [
            draws_of(
                sorted(found[number].samples, key=lambda sample: sample["id"]),
                TRACKS[track_of(found[number])],
            )
            for number in members
        ]
        for number, place in zip(members, ranks(draws), strict=True):
            places[number] = place
    return places


def order(row: Row, metric: str) -> tuple[Any, ...]:
    """Return what rows are sorted by: cell, largest world, pool and set of sub-tasks first; in it best first."""
    estimate = row["metrics"][metric]
    return (
        row["scale"] != "paper",
        row["scale"],
        row["split"],
        -len(row["subtasks"]),
        row["subtasks"],
        -row["pool_size"],
        row["representation"],
        -(estimate["value"] if estimate else -1),
        row["submission"],
    )


def _reproduced(path: Path, found: Sequence[Submission]) -> set[str]:
    """Return the submissions that maintainers ran again; the mark is for the very samples that they compared."""
    if not path.is_file():
        return set()
    marks = json.loads(path.read_text(encoding="utf-8"))
    have = {submission.folder: submission.results["samples_sha256"] for submission in found}
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
