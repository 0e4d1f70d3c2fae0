"""The board's page: one HTML file that loads nothing, the same numbers as JSON beside it, and both as a Space."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruleworld_data.io import Pushed, push_folder, write_whole

from ..report.page import asset, template_environment
from ..report.tables import percent
from ..score.scoring import ANSWER_METRICS
from .board import TRACKS, Row, cell_of, order
from .files import LIMITS, SAMPLES, read_folder

TITLES = {
    "answers": ("Answering", "Ranked by exact match: the share of sub-questions answered correctly."),
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
    environment = template_environment("leaderboard")
    environment.filters["percent"] = percent
    return environment.get_template("board.html.j2").render(
        tables=[_table(track, board["rows"], board["metrics"]) for track in TRACKS],
        badges=BADGES,
        samples_base=samples_base,
        samples_file=SAMPLES,
        style=asset("board.css", "leaderboard"),
        script=asset("board.js", "leaderboard"),
    )


def push_space(
    board: dict[str, Any], submissions: Path, folder: Path, repo: str, *, private: bool, dry_run: bool
) -> Pushed:
    """Send the board as a static Space of the Hugging Face Hub: card, page, numbers, submissions.

    Parameters
    ----------
    board : dict
        From `rwbench.leaderboard.board.build_board`.
    submissions : Path
        The folder that the board was built from.
    folder : Path
        Empty; what is sent is written here first.
    repo : str
        ``OWNER/NAME``.
    private : bool
        Of a Space that is made.
    dry_run : bool
        Send nothing.

    Raises
    ------
    FileNotFoundError, ValueError, OSError
        As `ruleworld_data.io.push_folder`.
    """
    copies = folder / "submissions"
    for row in board["rows"]:
        place = copies / row["submission"]
        place.mkdir(parents=True)
        for name, body in read_folder(submissions / row["submission"]).items():
            write_whole(place / name, body)
    # The page links to the samples relative to itself, so it is written beside the copies.
    write_board(board, folder, copies)
    write_whole(folder / "README.md", asset("space_card.md", "leaderboard").encode())
    return push_folder(
        folder,
        repo,
        "space",
        ("README.md", "index.html", "board.json", *(f"submissions/*/{name}" for name in LIMITS)),
        "RuleWorld: leaderboard",
        stale=("submissions/*",),
        private=private,
        space_sdk="static",
        dry_run=dry_run,
    )


def _table(track: str, rows: Sequence[Row], metrics: Sequence[str]) -> dict[str, Any]:
    metric = TRACKS[track]
    # A floor or ceiling frames every table that it has a number for.
    own = [
        _cells(row, metric)
        for row in rows
        if row["track"] == track or (row["kind"] != "contender" and row["metrics"][metric])
    ]
    own.sort(key=lambda row: order(row, metric))
    for number, row in enumerate(own):
        row["first"] = number > 0 and cell_of(own[number - 1]) != cell_of(row)
    # Answers of a ceiling are no column of a table about finding rules.
    wanted = [name for name in metrics if track == "answers" or name not in ANSWER_METRICS]
    options = {
        name: list(dict.fromkeys(value for row in own for value in _listed(row["filters"][name])))
        for name, _ in FILTERS
    }
    title, words = TITLES[track]
    return {
        "track": track,
        "title": title,
        "words": words,
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
            "world": f"{row['scale']}, {row['split']}",
            "tasks": "all 11" if len(subtasks) == 11 else f"{len(subtasks)}: {', '.join(subtasks)}",
            "trained": row["trained"],
            "weights": row["open_weights"],
            "badge": row["badges"],
        },
        "bar": estimate and {name: round(BAR * estimate[name], 1) for name in ("value", "ci_low", "ci_high")},
        "words": " ".join(row[name] for name in ("name", "submitter", "model", "description")).lower(),
    }


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]
