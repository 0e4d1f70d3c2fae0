"""The board as data and page: ranks, tables, badges, nothing and gaps."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ruleworld_data.spec import VERSIONS, splits_of
from rwbench.leaderboard.board import build_board, order, ranks, render_board, row_of
from rwbench.leaderboard.files import submission_folders
from rwbench.leaderboard.judge import CELL, RELEASED, SPLITS, board_spec, cell_of, check_spec
from rwbench.leaderboard.submissions import read, submit, validate
from rwbench.run.books import source_of
from rwbench.run.folder import finished_run
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from rwbench.spec import RunSpec

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;{{7*7}}"


PLACE = Path(__file__).parents[3] / "benchmarks/leaderboard"
COMMITTED = json.loads((PLACE / "site/board.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def board(submissions):
    return build_board(submissions)


def made_up_row(number, **changes):
    """A row of the committed board, on one sub-task and a hundred rules, with numbers of its own."""
    estimate = {"value": number / 101, "ci_low": number / 102, "ci_high": number / 100, "n": 550}
    changes = {"split": "mini", "subtasks": ["single_rule"], "pool_size": 100, "kind": "contender"} | changes
    metrics = COMMITTED["rows"][0]["metrics"] | {"exact_match": estimate, "recall@10": None}
    return COMMITTED["rows"][0] | {"rank": number + 1, "metrics": metrics} | changes


def board_of(rows):
    return COMMITTED | {"rows": rows}


def test_rows_are_ranked_by_the_paired_test_of_compare_and_frames_are_not(board, runs):
    by_id = [
        sorted(read_samples(runs[name] / "samples.jsonl"), key=lambda sample: sample["id"])
        for name in ("naive", "bm25")
    ]
    naive, bm25 = ranks(by_id, "recall@1")
    rank = {row["submission"].partition("_")[2]: row["rank"] for row in board["rows"]}
    assert rank == {"bm25": bm25, "naive": naive, "random": None, "solver": None} and bm25 == 1
    assert [row["name"] for row in board["rows"] if row["track"] == "answers"] == ["Symbolic solver"]
    assert not any(row["sealed"] for row in board["rows"])


def test_a_rank_is_one_more_than_the_number_of_better_rows():
    """Of four methods two cannot be told apart; one and the same has one rank."""
    rng = np.random.default_rng(0)

    def samples(right):
        hits = rng.permutation(np.arange(200) < right)
        return [
            {
                "id": f"q{i:03}",
                "subtask": "single_rule",
                "world_id": "w",
                "gold_rules": [[i]],
                "scores": {"exact_match": float(hit)},
            }
            for i, hit in enumerate(hits)
        ]

    best, close, third, far = samples(180), samples(178), samples(140), samples(40)
    assert ranks([far, close, best, third], "exact_match") == [4, 1, 1, 3]
    assert ranks([best, best], "exact_match") == [1, 1]


def test_held_out_rules_and_large_pools_come_first_and_the_order_of_sub_tasks_makes_no_cell():
    first, second = (made_up_row(0, subtasks=names) for names in (["a", "b"], ["b", "a"]))
    assert cell_of(first) == cell_of(second) != cell_of(made_up_row(0, subtasks=["a"]))
    assert order(first, "exact_match") == order(second, "exact_match")
    rows = [made_up_row(0), made_up_row(0, split="heldout"), made_up_row(0, pool_size=10_000)]
    ordered = sorted(rows, key=lambda row: order(row, "exact_match"))
    assert [(row["split"], row["pool_size"]) for row in ordered] == [
        ("heldout", 100),
        ("mini", 10_000),
        ("mini", 100),
    ]


def test_a_board_of_two_versions_of_the_data(submissions, runs, tmp_path, monkeypatch):
    """Each entry is asked in its own version and ranked in it alone; the newest data come first."""
    monkeypatch.setitem(RELEASED, "1.2.0", "2026-12-01")  # as if it were released
    root = shutil.copytree(submissions, tmp_path / "submissions")
    spec = replace(RunSpec.from_dict(finished_run(runs["naive"])[0]["spec"]), data="1.2.0")
    ran = run_spec(spec, source_of(spec), tmp_path / "runs")
    run = finished_run(tmp_path / "runs" / ran["run_id"])
    words = json.loads((root / "2026-11-28_naive/submission.json").read_text()) | {"date": "2026-12-01"}
    del words["spec"]
    words["name"] = "BM25, next data"
    with pytest.raises(ValueError, match=r"from 2026-12-01, when data 1\.2\.0 came out"):
        submit(*run, words | {"date": "2026-11-30"}, root, "next")
    submit(*run, words, root, "next")
    rows = [row for row in build_board(root)["rows"] if row["track"] == "retrieval"]
    shown = [(row["data"], row["name"], row["rank"]) for row in rows if row["kind"] == "contender"]
    assert shown[0] == ("1.2.0", "BM25, next data", 1) and {data for data, *_ in shown[1:]} == {"1.1.0"}
    page = render_board(build_board(root))
    assert re.findall(r"World tiny, data ([\d.]+)", page.partition('<section id="retrieval">')[2]) == [
        "1.2.0",
        "1.1.0",
    ]
    with pytest.raises(
        ValueError, match=r"spec\.data is not on the board, got '1\.3\.0'; run it with 1\.2\.0"
    ):
        check_spec(spec.to_dict() | {"data": "1.3.0"})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_board_takes_every_version_that_can_be_made_and_all_its_splits(version):
    for split in SPLITS:
        if split in splits_of(version):
            spec = board_spec({"name": "kit"}, "nl", 100, "tiny", split, data=version)
            assert check_spec(spec.to_dict()) == spec and spec.data == f"{version}.0"
    assert board_spec({"name": "kit"}, "nl", 100, "tiny", "unseen").data == "1.2.0"


def test_a_ceiling_that_answers_frames_both_tables_each_in_its_cell(board):
    page = render_board(board)
    answering, _, finding = page.partition('<section id="retrieval">')
    assert re.findall(r"<summary>(.*?)</summary>", answering) == ["Symbolic solver"]
    names = re.findall(r"<summary>(.*?)</summary>", finding)
    assert answering.count("<table") == finding.count("<table") == 1
    values = {row["name"]: row["metrics"]["recall@1"]["value"] for row in board["rows"]}
    assert names == sorted(values, key=lambda name: -values[name])
    assert "Exact match" not in finding.partition("How to read")[0]


def test_what_cannot_be_on_a_board_is_named(submissions, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        build_board(tmp_path / "nowhere")
    root = shutil.copytree(submissions, tmp_path / "submissions")
    (root / "2026-11-28_bm25" / "submission.json").write_text('{"name": "x"}')
    with pytest.raises(ValueError, match=r"2026-11-28_bm25 is refused:\nsubmission\.json: submitter"):
        build_board(root)


def test_a_board_of_nothing_and_of_gaps(tmp_path):
    (tmp_path / "submissions").mkdir()
    page = render_board(build_board(tmp_path / "submissions"))
    assert page.count("No contender yet") == 2 and "<table" not in page
    bare = made_up_row(1, metrics=dict.fromkeys(board_of([])["metrics"]), rank=None)
    page = render_board(board_of([bare, made_up_row(2, pool_size=1_000)]))
    assert page.count("<tr class=") == page.count("<table") == 2 and page.count("No contender yet") == 1
    assert "Recall@10," not in page[page.index("100 rules in") :].partition("How to read")[0]


def test_every_string_is_escaped_and_the_page_loads_nothing(board):
    fields = ("submission", "name", "submitter", "date", "model", "description", "hardware", "run_id")
    row = made_up_row(
        0, **dict.fromkeys(fields, EVIL), subtasks=[EVIL], links={"code": EVIL}, kind=EVIL, rank=None
    )
    sealed = {"round": EVIL, "sealed_score": {"value": 0.1, "ci_low": 0.0, "ci_high": 0.2}}
    page = render_board(board_of([{**row, "sealed": sealed, "scale": EVIL, "trained": EVIL}]))
    assert "<img" not in page and "{{7*7}}" in page
    assert "<script" not in page
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "49" not in body and "\"'`" not in body
    page = render_board(board)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)
    assert not re.search(r"url\(|@import", page)
    assert "default-src 'none'" in page and "script-src" not in page


# The board in the repository is what its submissions give.

AGAIN = "the board is out of date; type: rwbench board"


def test_it_shows_every_submission_in_its_own_words():
    shown = {row["submission"]: (row["name"], row["kind"], row["split"]) for row in COMMITTED["rows"]}
    entries = {path.name: read(path)[0] for path in submission_folders(PLACE / "submissions")}
    assert shown == {name: (e.name, e.kind, e.spec["split"]) for name, e in entries.items()}, AGAIN
    assert (PLACE / "site/index.html").read_text(encoding="utf-8") == render_board(COMMITTED), AGAIN


def test_floors_and_ceilings_stand_beside_the_contenders():
    frames, contenders = {}, set()
    for row in COMMITTED["rows"]:
        cell = tuple(str(row[name]) for name in CELL)
        frames.setdefault(cell, set()).add(row["kind"])
        contenders |= {cell} if row["kind"] == "contender" else set()
    assert len(contenders) >= 4
    assert all(frames[cell] == {"contender", "floor", "ceiling"} for cell in contenders)


def test_a_row_is_scored_anew_and_equal():
    """Of the full board, the first contender; the slow test below does it for all."""
    row = next(row for row in COMMITTED["rows"] if row["kind"] == "contender")
    again = json.loads(json.dumps(row_of(validate(PLACE / "submissions" / row["submission"]))))
    assert again == row | {"rank": None, "sealed": None}, AGAIN


@pytest.mark.slow
def test_all_of_it_comes_out_again():
    assert json.loads(json.dumps(build_board(PLACE / "submissions"))) == COMMITTED
