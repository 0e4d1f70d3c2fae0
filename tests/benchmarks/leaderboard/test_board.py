"""The board as data and page: ranks, tables, badges; nothing, one thing and gaps to show."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from rwbench.leaderboard.board import build_board, order, ranks
from rwbench.leaderboard.copies import cell_of
from rwbench.leaderboard.page import render_board, write_board
from rwbench.score.samples import read_samples
from rwbench.score.stats import paired_difference, sample_clusters

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;{{7*7}}"


@pytest.fixture(scope="module")
def board(submissions):
    return build_board(submissions)


def made_up_row(number, **changes):
    """A row as `row_of` makes it, with numbers of its own."""
    value = (number * 37 % 101) / 101
    ends = {"ci_low": max(0, value - 0.05), "ci_high": min(1, value + 0.05)}
    estimate = {"value": value, **ends, "n": 550, "method": "bootstrap"}
    metrics = dict.fromkeys(("exact_match", "strict_match", "recall@1", "recall@10"), estimate)
    return {
        "submission": f"2026-01-31_m{number}",
        "track": "answers",
        "name": f"Method {number}",
        "submitter": "Team",
        "date": "2026-01-31",
        "kind": "contender",
        "trained": "yes" if number % 2 else "no",
        "open_weights": "none",
        "model": "none",
        "description": "Does things.",
        "links": {},
        "scale": "paper",
        "split": "mini",
        "subtasks": ["single_rule"],
        "representation": "nl" if number % 3 else "fol",
        "pool_size": (100, 1_000, 10_000)[number % 3],
        "n": 550,
        "metrics": {**metrics, "recall@100": None},
        "cost_usd": None if number % 4 else number / 10,
        "tokens": None,
        "calls": None,
        "hardware": None,
        "rank": number + 1,
        "sealed": None,
        "badges": ["claimed"],
        "run_id": "0" * 12,
        "samples_sha256": "0" * 64,
    } | changes


def board_of(rows):
    metrics = ["exact_match", "strict_match", "recall@1", "recall@10", "recall@100"]
    tracks = {"answers": "exact_match", "retrieval": "recall@1"}
    return {"schema_version": 2, "metrics": metrics, "tracks": tracks, "rows": rows}


def test_rows_are_ranked_by_the_paired_test_of_compare_and_frames_are_not(board, runs):
    by_id = [
        sorted(read_samples(runs[name] / "samples.jsonl"), key=lambda sample: sample["id"])
        for name in ("naive", "bm25")
    ]
    values = [np.array([sample["scores"]["recall@1"] for sample in samples]) for samples in by_id]
    groups = [sample["subtask"] for sample in by_id[0]]
    difference = paired_difference(*values, groups, sample_clusters(by_id[0]))
    rank = {row["submission"].partition("_")[2]: row["rank"] for row in board["rows"]}
    assert rank == {"bm25": 1, "naive": 1 + (difference.ci_low > 0), "random": None, "solver": None}
    assert [row["name"] for row in board["rows"] if row["track"] == "answers"] == ["Symbolic solver"]
    assert all(row["badges"] == ["claimed"] for row in board["rows"])


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


def test_a_ceiling_that_answers_frames_both_tables_each_in_its_cell(board):
    page = render_board(board)
    answering, _, finding = page.partition('<section id="retrieval">')
    assert re.findall(r"<summary>(.*?)</summary>", answering) == ["Symbolic solver"]
    names = re.findall(r"<summary>(.*?)</summary>", finding)
    values = {row["name"]: row["metrics"]["recall@1"]["value"] for row in board["rows"]}
    assert names == sorted(values, key=lambda name: -values[name])
    assert "Exact match" not in finding.partition("How to read")[0]


def test_marks_of_reproduction_are_for_the_very_samples(submissions, board, tmp_path):
    root = shutil.copytree(submissions, tmp_path / "submissions")
    row = next(row for row in board["rows"] if row["name"] == "BM25")
    marks = {row["submission"]: {"samples_sha256": row["samples_sha256"], "date": "2026-02-01"}}
    (tmp_path / "reproduced.json").write_text(json.dumps(marks))
    badges = {row["submission"]: row["badges"] for row in build_board(root)["rows"]}
    assert badges[row["submission"]] == ["reproduced by us"]
    marks[row["submission"]]["samples_sha256"] = "0" * 64
    (tmp_path / "reproduced.json").write_text(json.dumps(marks))
    with pytest.raises(ValueError, match="run it again, compare"):
        build_board(root)
    (tmp_path / "reproduced.json").write_text('{"a": {}}')
    with pytest.raises(ValueError, match="must map a submission to"):
        build_board(root)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"round": "a", "scores": [null]}', '{"scores": 1e999}'])
def test_scores_of_a_round_that_are_none_are_named(text, submissions, tmp_path):
    path = tmp_path / "rounds/2026-1/scores.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"scores\.json is no round's scores .* rwbench round score"):
        build_board(submissions, tmp_path / "rounds")


def test_a_refused_submission_stops_the_board_and_is_named(submissions, tmp_path):
    root = shutil.copytree(submissions, tmp_path / "submissions")
    (root / "2026-01-31_bm25" / "submission.json").write_text('{"name": "x"}')
    with pytest.raises(ValueError, match="2026-01-31_bm25 is refused") as refused:
        build_board(root)
    assert "submitter is missing" in str(refused.value)


def test_the_same_board_twice_is_the_same_bytes(submissions, board, tmp_path):
    for name in ("a", "b"):
        write_board(build_board(submissions), tmp_path / name, submissions)
    for name in ("index.html", "board.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a/board.json").read_text()) == json.loads(json.dumps(board))


def test_a_board_of_nothing_and_of_gaps(tmp_path):
    (tmp_path / "submissions").mkdir()
    page = render_board(build_board(tmp_path / "submissions"))
    assert page.count("No submission yet") == 2 and "<table" not in page
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        build_board(tmp_path / "nowhere")
    bare = made_up_row(1, metrics=dict.fromkeys(board_of([])["metrics"]), rank=None)
    page = render_board(board_of([bare]))
    assert page.count("<tr class=") == 1 and page.count("No submission yet") == 1
    assert "Tokens</button>" not in page and "Recall@10" not in page.partition("How to read")[0]


def test_every_string_is_escaped_and_the_page_loads_nothing(board):
    fields = ("submission", "name", "submitter", "date", "model", "description", "hardware", "run_id")
    row = made_up_row(0, **dict.fromkeys(fields, EVIL), subtasks=[EVIL], links={"code": EVIL}, kind=EVIL)
    sealed = {"round": EVIL, "drop": {"value": 0.1, "ci_low": 0.0, "ci_high": 0.2}}
    page = render_board(board_of([{**row, "sealed": sealed, "scale": EVIL, "trained": EVIL}]))
    assert "<img" not in page and "{{7*7}}" in page
    assert page.count("<script") == page.count("</script>") == 1
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "49" not in body and "\"'`" not in body
    page = render_board(board)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)
    assert not re.search(r"url\(|@import|innerHTML|eval\(", page)
    assert "default-src 'none'" in page


def test_a_disk_or_place_that_takes_nothing_is_one_line(tmp_path):
    """No traceback, an exit code, and what was there is there."""
    (tmp_path / "submissions").mkdir()
    (tmp_path / "file").write_text("mine")
    words = [sys.executable, "-m", "rwbench.cli.app", "board", tmp_path / "submissions"]

    def run(*more, **streams):
        return subprocess.run([*words, *more], stderr=subprocess.PIPE, text=True, **streams)

    done = run("--out", tmp_path / "file")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and str(tmp_path / "file") in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    with open("/dev/full", "w") as full:
        done = run(stdout=full)
    assert (done.returncode, done.stderr) == (1, "error: the disk is full\n")
