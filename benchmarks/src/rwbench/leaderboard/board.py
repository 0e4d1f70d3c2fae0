"""The board: one row per accepted submission, every number recomputed from its samples; as JSON and as a page.

Two tables: *answers*, ranked by exact match, and *retrieval*, ranked by Recall@1, of methods that only find rules.
Ranks are within a cell: data version, world, split, sub-tasks, representation and pool size. Numbers of different
pool sizes are never averaged. Floors and ceilings frame a cell and have no rank.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.io import write_whole

from ..report.page import rendered
from ..report.setting import macro
from ..report.tables import percent
from ..score.samples import Sample
from ..score.scoring import ANSWER_METRICS, RECALLS
from ..score.stats import DRAWS, codes, group_means, interval, row_means, sample_clusters
from .files import SAMPLES, Refused, submission_folders
from .judge import CELL, SPLITS, cell_of
from .rounds import SCORES, round_scores
from .submissions import TRACKS, Submission, check_all

SCHEMA_VERSION = 2
METRICS = (*ANSWER_METRICS, *RECALLS)
Row = dict[str, Any]


def build_board(root: Path) -> dict[str, Any]:
    """Return the content of board.json, from a folder of submissions; scores of the rounds beside it are a column.

    A ValueError if a submission is refused.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; give the folder that holds submissions")
    rows: list[Row] = []
    cells: dict[tuple[Any, ...], list[tuple[Row, list[Sample]]]] = defaultdict(list)
    for name, submission in check_all(submission_folders(root)).items():
        if isinstance(submission, Refused):
            raise ValueError(f"{name} is refused:\n{submission}")
        rows.append(row := row_of(submission))
        if row["kind"] == "contender":
            cells[row["track"], *cell_of(row)].append((row, submission.samples))
    for (track, *_), members in cells.items():
        for (row, _), rank in zip(members, ranks([s for _, s in members], TRACKS[track]), strict=True):
            row["rank"] = rank
    sealed = _sealed(root.parent / "rounds")
    for row in rows:
        row["sealed"] = sealed.get(row["submission"])
    rows.sort(key=lambda row: (row["track"], order(row, TRACKS[row["track"]])))
    return {"schema_version": SCHEMA_VERSION, "metrics": list(METRICS), "tracks": TRACKS, "rows": rows}


def row_of(submission: Submission) -> Row:
    """Return what the board shows of a submission; rank and sealed score follow when all rows are known."""
    spec, results, entry = submission.spec.to_dict(), submission.results, submission.entry
    usage = results["usage"]
    means = {name: value["mean"] for name, value in usage.items()}
    tokens = [means[name] for name in ("prompt_tokens", "completion_tokens") if name in means]
    words = ("name", "submitter", "date", "kind", "trained", "open_weights", "model", "description")
    return {
        "submission": submission.folder,
        "track": submission.track,
        **{name: getattr(entry, name) for name in words},
        "links": {name: link for name in ("code", "paper") if (link := getattr(entry, name))},
        **{name: spec[name] for name in CELL},
        "n": results["n"]["scored"],
        "metrics": {name: macro(results, name) for name in METRICS},
        "cost_usd": entry.cost_usd,
        "tokens": sum(tokens) if tokens else None,
        "calls": means.get("calls"),
        "hardware": entry.hardware,
        "rank": None,
        "sealed": None,
        "run_id": results["run_id"],
        "samples_sha256": results["samples_sha256"],
    }


def order(row: Row, metric: str) -> tuple[Any, ...]:
    """Return what rows are sorted by: cell (newest data, held-out rules, large pools first), in it best first."""
    estimate = row["metrics"][metric]
    data = [-int(part) for part in row["data"].split(".")]
    world = (data, row["scale"] != "paper", row["scale"], SPLITS.index(row["split"]))
    cell = (*world, -len(row["subtasks"]), sorted(row["subtasks"]), -row["pool_size"], row["representation"])
    return (*cell, -(estimate["value"] if estimate else -1), row["submission"])


def ranks(members: Sequence[Sequence[Sample]], metric: str) -> list[int]:
    """Return the rank of each submission of a cell: one more than the number that is significantly better.

    Better is whose paired 95 % interval of the difference lies above zero. All answer the same questions and every
    bootstrap draw is the same for all, so the difference of two rows' draws is the paired bootstrap.
    """
    draws = []
    for samples in members:
        by_id = sorted(samples, key=lambda sample: sample["id"])
        values = np.array([sample["scores"][metric] for sample in by_id], dtype=np.float64)
        group_of, _ = codes([sample["subtask"] for sample in by_id])
        cluster_of, _ = codes(sample_clusters(by_id))
        draws.append(row_means(group_means(values, group_of, cluster_of, DRAWS)))
    above = [[other.mean() > own.mean() and interval(other - own)[0] > 0 for other in draws] for own in draws]
    return [1 + int(sum(row)) for row in above]


def _sealed(rounds: Path) -> dict[str, dict[str, Any]]:
    """Return the newest sealed score of each submission, by folder name, recomputed: of a round that was scored."""
    newest: dict[str, dict[str, Any]] = {}
    scored = [path.parent for path in rounds.glob(f"*/{SCORES}")]
    # 2026-10 is later than 2026-9
    for folder in sorted(scored, key=lambda path: re.sub(r"\d+", lambda n: n[0].zfill(9), path.name)):
        scores = round_scores(folder)["scores"]
        newest |= {score["public"]: {"round": folder.name, **score} for score in scores}
    return newest


def write_board(board: dict[str, Any], out: Path) -> Path:
    """Write ``board.json`` and ``index.html`` to a folder beside the submissions, and return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "board.json", json.dumps(board, ensure_ascii=False) + "\n")
    write_whole(page := out / "index.html", render_board(board))
    return page


def render_board(board: dict[str, Any]) -> str:
    """Return the page as one HTML string with no outside resource.

    Every string of a submission is escaped here, though the checks let no HTML through.
    """
    tables = {track: _tables(track, board) for track in TRACKS}
    return rendered("leaderboard", "board", tracks=tables, main=TRACKS, samples_file=SAMPLES, percent=percent)


def _tables(track: str, board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a table for each setting that has a row of the track; floors and ceilings with a number frame it."""
    metric = TRACKS[track]
    # Answers of a ceiling are no column of a table about finding rules.
    wanted = [name for name in board["metrics"] if track == "answers" or name not in ANSWER_METRICS]
    shown = [
        r for r in board["rows"] if r["track"] == track or (r["kind"] != "contender" and r["metrics"][metric])
    ]
    tables = []
    for _, group in groupby(sorted(shown, key=lambda row: order(row, metric)), key=cell_of):
        rows = list(group)
        if any(row["track"] == track for row in rows):
            columns = [name for name in wanted if name == metric or any(row["metrics"][name] for row in rows)]
            tables.append({"rows": rows, "metrics": columns})
    return tables
