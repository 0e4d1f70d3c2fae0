"""The board's page: one HTML file that loads and runs nothing, a table per setting; beside it the numbers as JSON."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..report.page import asset, template_environment
from ..report.tables import percent
from ..score.scoring import ANSWER_METRICS
from .board import TRACKS, order
from .files import SAMPLES
from .judge import cell_of


def write_board(board: dict[str, Any], out: Path) -> Path:
    """Write ``board.json`` and ``index.html`` to a folder beside the submissions, and return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "board.json", (json.dumps(board, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(out / "index.html", render_board(board).encode())
    return out / "index.html"


def render_board(board: dict[str, Any]) -> str:
    """Return the page as one HTML string with no outside resource.

    Every string of a submission is escaped here, though the checks let no HTML through.
    """
    environment = template_environment("leaderboard")
    environment.filters["percent"] = percent
    return environment.get_template("board.html.j2").render(
        tracks={track: _tables(track, board) for track in TRACKS},
        main=TRACKS,
        samples_file=SAMPLES,
        style=asset("board.css", "leaderboard"),
    )


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
