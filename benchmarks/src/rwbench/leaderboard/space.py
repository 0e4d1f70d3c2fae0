"""The board as a static Space of the Hugging Face Hub: card, page, numbers, and the submissions that it links to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruleworld_data.io import Pushed, check_repo, push_folder, write_whole

from ..report.page import asset
from .files import LIMITS, read_folder
from .page import write_board

CARD = "README.md"
FOLDER = "submissions"


def push_space(
    board: dict[str, Any],
    submissions: Path,
    folder: Path,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
) -> Pushed:
    """Write the Space's files and send them.

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
    check_repo(repo)
    for row in board["rows"]:
        place = folder / FOLDER / row["submission"]
        place.mkdir(parents=True)
        for name, body in read_folder(submissions / row["submission"]).items():
            write_whole(place / name, body)
    # The page links to the samples relative to itself, so it is written beside the copies.
    write_board(board, folder, folder / FOLDER)
    write_whole(folder / CARD, asset("space_card.md").encode())
    wanted = (CARD, "index.html", "board.json", *(f"{FOLDER}/*/{name}" for name in LIMITS))
    return push_folder(
        folder,
        repo,
        "space",
        wanted,
        "RuleWorld: leaderboard",
        stale=(f"{FOLDER}/*",),
        private=private,
        space_sdk="static",
        dry_run=dry_run,
    )
