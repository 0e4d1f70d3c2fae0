"""The board in the repository is what its submissions and rounds give."""

import json
from pathlib import Path

import pytest
from rwbench.leaderboard.board import CELL, METRICS, TRACKS, build_board
from rwbench.leaderboard.files import METADATA, RESULTS, read_folder, submission_folders
from rwbench.leaderboard.metadata import Metadata
from rwbench.leaderboard.page import render_board
from rwbench.leaderboard.rounds import verify_round
from rwbench.report.setting import macro

PLACE = Path(__file__).parents[3] / "benchmarks/leaderboard"
BOARD = json.loads((PLACE / "site/board.json").read_text(encoding="utf-8"))
AGAIN = "the board is out of date; type: rwbench board"


def test_it_shows_every_submission_with_its_own_numbers():
    rows = {row["submission"]: row for row in BOARD["rows"]}
    assert set(rows) == {folder.name for folder in submission_folders(PLACE / "submissions")}, AGAIN
    for name, row in rows.items():
        found = read_folder(PLACE / "submissions" / name)
        results, words = json.loads(found[RESULTS]), Metadata.from_yaml(found[METADATA])
        assert row["samples_sha256"] == results["samples_sha256"], AGAIN
        assert row["metrics"] == {metric: macro(results, metric) for metric in METRICS}, AGAIN
        assert (row["name"], row["kind"]) == (words.name, words.kind), AGAIN


def test_the_page_is_that_of_its_numbers():
    assert (PLACE / "site/index.html").read_text(encoding="utf-8") == render_board(BOARD), AGAIN


@pytest.mark.parametrize("track", ["answers", "retrieval"])
def test_floors_and_ceilings_stand_beside_the_contenders_of_each_table(track):
    """In every setting of a table that has a contender."""
    frames, contenders = {}, set()
    for row in BOARD["rows"]:
        setting = tuple(str(row[name]) for name in CELL)
        if row["kind"] != "contender" and row["metrics"][TRACKS[track]]:
            frames.setdefault(setting, set()).add(row["kind"])
        elif row["track"] == track:
            contenders.add(setting)
    assert len(contenders) >= 2
    assert {key: frames.get(key) for key in contenders} == {key: {"floor", "ceiling"} for key in contenders}


@pytest.mark.slow
def test_all_of_it_comes_out_again():
    """Every submission re-scored and every revealed round made again, at paper scale."""
    assert build_board(PLACE / "submissions", PLACE / "rounds") == BOARD
    for path in sorted(PLACE.glob("rounds/*/scores.json")):
        assert verify_round(path.parent).revealed is not None
