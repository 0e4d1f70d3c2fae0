"""The board's page: one HTML file that loads nothing, and the same numbers as JSON beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..report.page import asset, template_environment
from ..report.tables import percent
from ..score.scoring import ANSWER_METRICS
from .board import TRACKS, Row, order
from .files import SAMPLES
from .judge import cell_of

FILTERS = (
    ("representation", "Rules"),
    ("pool", "Pool"),
    ("world", "World"),
    ("tasks", "Sub-tasks"),
    ("trained", "Trained on RuleWorld"),
    ("weights", "Open weights"),
    ("badge", "Badge"),
)
BAR = 96
"""Width of the drawn interval in pixels."""


def write_board(board: dict[str, Any], out: Path, submissions: Path) -> Path:
    """Write ``board.json`` and ``index.html`` to a folder and return the page's path; it links to the submissions."""
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "board.json", (json.dumps(board, indent=1, ensure_ascii=False) + "\n").encode())
    base = Path(os.path.relpath(submissions.resolve(), out.resolve())).as_posix()
    write_whole(out / "index.html", render_board(board, base).encode())
    return out / "index.html"


def render_board(board: dict[str, Any], samples_base: str = "../submissions") -> str:
    """Return the page as one HTML string with no outside resource.

    Every string of a submission is escaped here, though the checks let no HTML through.
    """
    environment = template_environment("leaderboard")
    environment.filters["percent"] = percent
    return environment.get_template("board.html.j2").render(
        tables=[_table(track, board["rows"], board["metrics"]) for track in TRACKS],
        samples_base=samples_base,
        samples_file=SAMPLES,
        style=asset("board.css", "leaderboard"),
        script=asset("board.js", "leaderboard"),
    )


def _table(track: str, rows: Sequence[Row], metrics: Sequence[str]) -> dict[str, Any]:
    metric = TRACKS[track]
    # A floor or ceiling frames every table that it has a number for.
    shown = (r for r in rows if r["track"] == track or (r["kind"] != "contender" and r["metrics"][metric]))
    own = sorted((_cells(row, metric) for row in shown), key=lambda row: order(row, metric))
    for number, row in enumerate(own):
        row["first"] = number > 0 and cell_of(own[number - 1]) != cell_of(row)
    # Answers of a ceiling are no column of a table about finding rules.
    wanted = [name for name in metrics if track == "answers" or name not in ANSWER_METRICS]
    options = {
        name: list(dict.fromkeys(value for row in own for value in row["filters"][name].split("|")))
        for name, _ in FILTERS
    }
    return {
        "track": track,
        "rows": own,
        "main": metric,
        "metrics": [name for name in wanted if name != metric and any(row["metrics"][name] for row in own)],
        "filters": [(name, label, options[name]) for name, label in FILTERS if len(options[name]) > 1],
        "sealed": any(row["sealed"] for row in own),
        "cost": any(row["cost_usd"] is not None for row in own),
        "tokens": any(row["tokens"] is not None for row in own),
        "contenders": sum(row["kind"] == "contender" for row in own),
    }


def _cells(row: Row, metric: str) -> Row:
    """Return a row with what the page adds: values of the filters, the drawn interval, words to search."""
    subtasks = row["subtasks"]
    estimate = row["metrics"][metric]
    return {
        **row,
        "filters": {
            "representation": row["representation"].upper(),
            "pool": f"{row['pool_size']:,}",
            "world": f"{row['scale']}, {row['split']}, data {row['data']}",
            "tasks": "all 11" if len(subtasks) == 11 else f"{len(subtasks)}: {', '.join(subtasks)}",
            "trained": row["trained"],
            "weights": row["open_weights"],
            "badge": "|".join(row["badges"]),
        },
        "bar": estimate and {name: round(BAR * estimate[name], 1) for name in ("value", "ci_low", "ci_high")},
        "words": " ".join(row[name] for name in ("name", "submitter", "model", "description")).lower(),
    }
