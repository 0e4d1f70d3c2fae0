"""The board in the repository is what its submissions and rounds give."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rwbench.leaderboard.board import CELL, METRICS, TRACKS, build_board
from rwbench.leaderboard.files import METADATA, RESULTS, read_folder, submission_folders
from rwbench.leaderboard.judge import MAX_TOP_K, SPLITS, Judge
from rwbench.leaderboard.metadata import Metadata
from rwbench.leaderboard.page import render_board
from rwbench.leaderboard.records import pack_samples, read_records
from rwbench.leaderboard.rounds import verify_round
from rwbench.report.setting import macro
from rwbench.run.data import Question
from rwbench.run.pools import Pool
from rwbench.score.samples import read_samples
from rwbench.spec import RunSpec

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


def committed_runs():
    """The first run of every method, search and representation in the repository; one of each is enough."""
    found = {}
    for path in sorted(PLACE.parent.glob("results/*/*/results.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        spec, label = results["spec"], results["method"]["label"].partition(",")[0]  # without settings
        # An analysis of a model's layers neither answers nor finds rules, and is not for the board.
        if spec["split"] in SPLITS and spec["top_k"] <= MAX_TOP_K and results["metrics"]:
            found.setdefault((spec["method"]["name"], label, spec["representation"]), path.parent)
    return found


def test_a_committed_run_that_is_handed_in_gets_its_own_scores(monkeypatch):
    """Every method, judged from what a submission holds; but for expected recall, which needs a search's scores."""
    judge, runs = Judge(), committed_runs()
    assert len({name for name, *_ in runs}) >= 9
    for key, folder in runs.items():
        spec = RunSpec.from_dict(json.loads((folder / RESULTS).read_text(encoding="utf-8"))["spec"])
        samples = read_samples(folder / "samples.jsonl")
        questions = tuple(
            Question(
                each["id"],
                each["subtask"],
                each["world_id"],
                "",
                place,
                each["fold"],
                tuple(each["gold_answers"]),
                tuple(map(tuple, each["gold_rules"])),
                {},
            )
            for place, each in enumerate(samples)
        )
        found = {rule for each in samples for search in each["retrieved"] or () for rule in search}
        pool = Pool(np.array([*found], np.int32), None, spec.representation, questions)
        world = SimpleNamespace(pools=lambda spec, pool=pool: [pool])
        monkeypatch.setattr(judge, "workspace", lambda spec, world=world: world)
        for each, ours in zip(judge.samples(spec, read_records(pack_samples(samples))), samples, strict=True):
            kept = {name: value for name, value in ours["scores"].items() if not name.startswith("expected")}
            assert each["scores"] == kept, (key, folder.name, each["id"])


@pytest.mark.slow
def test_all_of_it_comes_out_again():
    """Every submission re-scored and every revealed round made again, at paper scale."""
    assert build_board(PLACE / "submissions", PLACE / "rounds") == BOARD
    for path in sorted(PLACE.glob("rounds/*/scores.json")):
        assert verify_round(path.parent).revealed is not None
