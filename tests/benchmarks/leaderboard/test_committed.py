"""The board in the repository is what its submissions give."""

import json
from pathlib import Path

import pytest
from rwbench.leaderboard.board import build_board, render_board, row_of
from rwbench.leaderboard.files import submission_folders
from rwbench.leaderboard.judge import CELL
from rwbench.leaderboard.submissions import read, validate

PLACE = Path(__file__).parents[3] / "benchmarks/leaderboard"
BOARD = json.loads((PLACE / "site/board.json").read_text(encoding="utf-8"))
AGAIN = "the board is out of date; type: rwbench board"


def test_it_shows_every_submission_in_its_own_words():
    shown = {row["submission"]: (row["name"], row["kind"], row["split"]) for row in BOARD["rows"]}
    entries = {path.name: read(path)[0] for path in submission_folders(PLACE / "submissions")}
    assert shown == {name: (e.name, e.kind, e.spec["split"]) for name, e in entries.items()}, AGAIN
    assert (PLACE / "site/index.html").read_text(encoding="utf-8") == render_board(BOARD), AGAIN


def test_floors_and_ceilings_stand_beside_the_contenders():
    frames, contenders = {}, set()
    for row in BOARD["rows"]:
        cell = tuple(str(row[name]) for name in CELL)
        frames.setdefault(cell, set()).add(row["kind"])
        contenders |= {cell} if row["kind"] == "contender" else set()
    assert len(contenders) >= 4
    assert all(frames[cell] == {"contender", "floor", "ceiling"} for cell in contenders)


def test_a_row_is_scored_anew_and_equal():
    """Of the full board, the first contender; the slow test below does it for all."""
    row = next(row for row in BOARD["rows"] if row["kind"] == "contender")
    again = json.loads(json.dumps(row_of(validate(PLACE / "submissions" / row["submission"]))))
    assert again == row | {"rank": None, "sealed": None}, AGAIN


@pytest.mark.slow
def test_all_of_it_comes_out_again():
    assert json.loads(json.dumps(build_board(PLACE / "submissions"))) == BOARD
