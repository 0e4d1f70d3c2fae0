"""The board as a static Space of the Hugging Face Hub: card, page, numbers, and the submissions that it links to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole
from ruleworld_data.io.hub import CARD, Push, check_repo, find_files

from ..report.page import asset
from .files import LIMITS, read_folder
from .page import write_board

FOLDER = "submissions"


def space_push(
    board: dict[str, Any], submissions: Path, folder: Path, repo: str, private: bool = False
) -> Push:
    """Write the Space's files and return what `ruleworld_data.io.hub.send` takes.

    Parameters
    ----------
    board : dict
        From `rwbench.leaderboard.board.build_board`.
    submissions : Path
        The folder that the board was built from.
    folder : Path
        Empty; stays until the push is sent.
    repo : str
        ``OWNER/NAME``.
    private : bool
        Of a Space that is made.

    Raises
    ------
    ValueError
        If that is no repository name.
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
    return Push(
        folder,
        repo,
        "space",
        private,
        find_files(folder, wanted),
        stale=(f"{FOLDER}/*",),
        space_sdk="static",
    )
