"""The board's page: one HTML file that loads nothing, and the same numbers as JSON beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..report.page import asset
from ..report.tables import percent
from ..score.scoring import ANSWER_METRICS
from .board import CELL, TRACKS, Row, order
from .files import SAMPLES

TITLES = {
    "answers": ("Answering", "Ranked by exact match: the share of sub-questions answered rightly."),
    "retrieval": (
        "Finding rules",
        "Methods that only rank rules and answer nothing; ranked by Recall@1. Not comparable with the table above.",
    ),
}
FILTERS = (
    ("representation", "Rules"),
    ("pool", "Pool"),
    ("world", "World"),
    ("tasks", "Sub-tasks"),
    ("trained", "Trained on RuleWorld"),
    ("weights", "Open weights"),
    ("badge", "Badge"),
)
BADGES = {
    "re-scored": "every number was recomputed from the samples, with gold from our data",
    "reproduced": "maintainers ran it again and compared samples",
    "sealed round": "it also answered questions of a world that nobody could have seen before",
}
BAR = 96
"""Width of the drawn interval in pixels."""


def write_board(board: dict[str, Any], out: Path, submissions: Path) -> Path:
    """Write ``board.json`` and ``index.html`` and return the page's path.

    Parameters
    ----------
    board : dict
        From `rwbench.leaderboard.board.build_board`.
    out : Path
        Folder; made if missing.
    submissions : Path
        Where the samples are; the page links to them relative to itself.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "board.json", (json.dumps(board, indent=1, ensure_ascii=False) + "\n").encode())
    base = Path(os.path.relpath(submissions.resolve(), out.resolve())).as_posix()
    write_whole(out / "index.html", render_board(board, base).encode())
    return out / "index.html"


def render_board(board: dict[str, Any], samples_base: str = "../submissions") -> str:
    """Return the page as one HTML string with no outside resource.

    Every string of a submission is escaped here, though the checks let no HTML through.
    """
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader("rwbench.report", "templates"),
    )
    environment.filters["percent"] = percent
    return environment.get_template("board.html.j2").render(
        tables=[_table(track, board["rows"], board["metrics"]) for track in TRACKS],
        badges=BADGES,
        samples_base=samples_base,
        samples_file=SAMPLES,
        style=asset("report.css") + asset("board.css"),
        script=asset("board.js"),
    )


def _table(track: str, rows: Sequence[Row], metrics: Sequence[str]) -> dict[str, Any]:
    main = TRACKS[track]
    # A floor or ceiling frames every table that it has a number for.
    own = [
        _shown(row, main)
        for row in rows
        if row["track"] == track or (row["kind"] != "contender" and row["metrics"][main])
    ]
    own.sort(key=lambda row: order(row, main))
    title, words = TITLES[track]
    for number, row in enumerate(own):
        row["first"] = number > 0 and any(own[number - 1][name] != row[name] for name in CELL)
    # Answers of a ceiling are no column of a table about finding rules.
    wanted = [name for name in metrics if track == "answers" or name not in ANSWER_METRICS]
    present = [name for name in wanted if name != main and any(row["metrics"][name] for row in own)]
    options = {
        name: list(dict.fromkeys(value for row in own for value in _values(row["filters"][name])))
        for name, _ in FILTERS
    }
    return {
        "track": track,
        "title": title,
        "words": words,
        "rows": own,
        "main": main,
        "metrics": present,
        "filters": [(name, label, options[name]) for name, label in FILTERS if len(options[name]) > 1],
        "sealed": any(row["sealed"] for row in own),
        "cost": any(row["cost_usd"] is not None for row in own),
        "tokens": any(row["tokens"] is not None for row in own),
        "contenders": sum(row["kind"] == "contender" for row in own),
    }


def _shown(row: Row, main: str) -> Row:
    everything = len(row["subtasks"]) == 11
    filters = {
        "representation": row["representation"].upper(),
        "pool": f"{row['pool_size']:,}",
        "world": f"{row['scale']}, {row['split']}",
        "tasks": "all 11" if everything else f"{len(row['subtasks'])}: {', '.join(row['subtasks'])}",
        "trained": row["trained"],
        "weights": row["open_weights"],
        "badge": row["badges"],
    }
    estimate = row["metrics"][main]
    bar = None
    if estimate:
        bar = {name: round(BAR * estimate[name], 1) for name in ("value", "ci_low", "ci_high")}
    words = " ".join((row["name"], row["submitter"], row["model"], row["description"])).lower()
    return {**row, "filters": filters, "bar": bar, "words": words}


def _values(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]
