"""The board as data: ranks, tables, badges; nothing, one thing and gaps to show."""

import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rwbench.cli.app import app
from rwbench.leaderboard.board import bootstrap_draws, build_board, order, ranks, read_marks
from rwbench.leaderboard.copies import cell_of
from rwbench.leaderboard.page import render_board, write_board
from rwbench.leaderboard.submit import mark_reproduced
from rwbench.run.folder import find_specs
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from rwbench.score.stats import interval, paired_difference, sample_clusters
from typer.testing import CliRunner

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;{{7*7}}"


@pytest.fixture(scope="module")
def board(submissions):
    return build_board(submissions)


@pytest.fixture(scope="module")
def by_id(runs):
    """Samples of the two contenders, in the order of ids."""
    found = [read_samples(runs[name] / "samples.jsonl") for name in ("naive", "bm25")]
    return [sorted(samples, key=lambda sample: sample["id"]) for samples in found]


@pytest.fixture(scope="module")
def difference(by_id):
    """What `rwbench compare` says of them."""
    values = [np.array([sample["scores"]["recall@1"] for sample in samples]) for samples in by_id]
    return paired_difference(*values, [sample["subtask"] for sample in by_id[0]], sample_clusters(by_id[0]))


def made_up_row(number, **changes):
    """A row as `row_of` makes it, with numbers of its own."""
    value = (number * 37 % 101) / 101

    def estimate(value):
        ends = {"ci_low": max(0, value - 0.05), "ci_high": min(1, value + 0.05)}
        return {"value": value, **ends, "n": 550, "method": "bootstrap"}

    metrics = dict.fromkeys(("exact_match", "strict_match", "recall@1", "recall@10"), estimate(value))
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
    return {"schema_version": 1, "metrics": metrics, "tracks": tracks, "rows": rows}


def test_rows_are_ranked_within_their_cell_and_frames_are_not(board, difference):
    rows = {row["submission"].partition("_")[2]: row for row in board["rows"]}
    ranked = {name: row["rank"] for name, row in rows.items()}
    assert ranked == {"bm25": 1, "naive": 1 + (difference.ci_low > 0), "random": None, "solver": None}
    assert [name for name, row in rows.items() if row["track"] == "answers"] == ["solver"]
    assert all(row["badges"] == ["claimed"] for row in rows.values())


def test_ranks_use_the_paired_bootstrap_of_compare(by_id, difference):
    first, second = bootstrap_draws(by_id, "recall@1")
    assert interval(second - first) == pytest.approx((difference.ci_low, difference.ci_high))


def test_the_order_of_sub_tasks_makes_no_cell():
    first, second = (made_up_row(0, subtasks=names) for names in (["a", "b"], ["b", "a"]))
    assert cell_of(first) == cell_of(second) != cell_of(made_up_row(0, subtasks=["a"]))
    assert order(first, "exact_match") == order(second, "exact_match")


def test_a_rank_is_one_more_than_the_number_of_better_rows():
    noise = np.random.default_rng(0).normal(size=(4, 10_000)) * 0.01
    best, near, third, far = 0.9 + noise[0], 0.895 + noise[1], 0.8 + noise[2], 0.2 + noise[3]
    assert ranks(np.array([far, near, best, third])) == [4, 1, 1, 3]
    assert ranks(np.array([best, best])) == [1, 1]


def test_rows_that_cannot_be_told_apart_may_have_different_ranks_and_the_page_says_so(board):
    """Telling apart is not transitive: the first and the last of three differ, the one between them from neither."""
    noise = np.random.default_rng(0).normal(size=(3, 10_000)) * 0.01
    high, middle, low = 0.5 + noise[0], 0.475 + noise[1], 0.45 + noise[2]
    assert ranks(np.array([high, middle, low])) == [1, 1, 2]
    assert "may have different ranks" in render_board(board)


@pytest.mark.parametrize("spread", [0.005, 0.05])
def test_counting_ranks_as_quantiles_do(spread):
    """Also where a difference lies on the edge: every rank is that of the definition."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(60, 1)) * spread + rng.normal(size=(60, 1_000)) * 0.02
    better = np.quantile(draws[None] - draws[:, None], 0.025, axis=-1) > 0
    assert ranks(draws) == (1 + better.sum(1)).tolist()


def test_a_thousand_submissions_are_ranked_within_seconds():
    """Of CPU; it took two minutes."""
    draws = np.random.default_rng(2).normal(size=(1_000, 2_000))
    start = time.process_time()
    assert len(ranks(draws)) == 1_000
    assert time.process_time() - start < 8


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
    again = {row["submission"]: row["badges"] for row in build_board(root)["rows"]}
    assert again[row["submission"]] == ["reproduced by us"]
    marks[row["submission"]]["samples_sha256"] = "0" * 64
    (tmp_path / "reproduced.json").write_text(json.dumps(marks))
    with pytest.raises(ValueError, match="run it again and type: rwbench reproduced"):
        build_board(root)


def test_marks_that_are_made_at_once_are_all_kept(submissions, runs, tmp_path, monkeypatch):
    root = shutil.copytree(submissions, tmp_path / "submissions")
    for name in ("bm25", "naive"):
        again = shutil.copytree(runs[name], tmp_path / name / runs[name].name) / "results.json"
        results = json.loads(again.read_text())
        results["timing"]["finished"] = "2026-02-01T00:00:00+00:00"
        again.write_text(json.dumps(results))

    def slow(place):
        marks = read_marks(place)
        time.sleep(0.2)
        return marks

    monkeypatch.setattr("rwbench.leaderboard.submit.read_marks", slow)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: mark_reproduced(tmp_path / name, root, "2026-02-01"), ("bm25", "naive")))
    assert set(read_marks(root)) == {"2026-01-31_bm25", "2026-01-31_naive"}


def test_a_run_that_was_made_again_marks_its_submission(submissions, runs, workspace, tmp_path):
    """The check is of the samples, by a run of its own; a run that differs ends the mark."""
    root = shutil.copytree(submissions, tmp_path / "submissions")
    again, spec = tmp_path / "again", find_specs(runs["bm25"])[0][0]

    def command():
        done = CliRunner().invoke(app, ["reproduced", str(again), "--submissions", str(root), "--json"])
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr

    shutil.copytree(runs["bm25"], again / spec.run_id)
    name = "2026-01-31_bm25"
    assert command() == (1, {name: "it is the very run that was handed in; run it again"})
    assert [row["badges"] for row in build_board(root)["rows"]] == [["claimed"]] * 4
    shutil.rmtree(again)
    run_spec(spec, workspace, again)
    results = json.loads((again / spec.run_id / "results.json").read_text())
    results["timing"]["finished"] = "2026-02-01T00:00:00+00:00"
    (again / spec.run_id / "results.json").write_text(json.dumps(results))
    assert command() == (0, {name: None})
    badges = {row["submission"]: row["badges"] for row in build_board(root)["rows"]}
    assert {key for key, value in badges.items() if value == ["reproduced by us"]} == {name}
    samples = again / spec.run_id / "samples.jsonl"
    (first, *rest) = samples.read_text().splitlines(keepends=True)
    sample = json.loads(first)
    sample["retrieved"][0].reverse()
    samples.write_text("".join([json.dumps(sample) + "\n", *rest]))
    code, told = command()
    assert code == 1 and told[name].startswith("1 of 50 questions differ, the first is ['multi_hop_2-")
    assert [row["badges"] for row in build_board(root)["rows"]] == [["claimed"]] * 4
    shutil.rmtree(again / spec.run_id)
    (again / "x").mkdir()
    assert command()[0] == 2
    (tmp_path / "reproduced.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"reproduced\.json is no list of marks \(a: "):
        build_board(root)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"round": "a", "seed": 1, "scores": [null]}', '{"scores": 1e999}', "\xff"]
)
def test_scores_of_a_round_that_are_none_are_told(text, submissions, tmp_path):
    path = tmp_path / "rounds/2026-1/scores.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"scores\.json is no round's scores .* rwbench round score"):
        build_board(submissions, tmp_path / "rounds")


def test_a_refused_submission_stops_the_board_and_is_named(submissions, tmp_path):
    root = shutil.copytree(submissions, tmp_path / "submissions")
    (root / "2026-01-31_bm25" / "metadata.yaml").write_text("name: x\n")
    with pytest.raises(ValueError, match="2026-01-31_bm25 is refused") as told:
        build_board(root)
    assert "submitter is missing" in str(told.value)


def test_the_same_board_twice_is_the_same_bytes(submissions, board, tmp_path):
    for name in ("a", "b"):
        write_board(build_board(submissions), tmp_path / name, submissions)
    for name in ("index.html", "board.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a/board.json").read_text()) == json.loads(json.dumps(board))


def test_a_board_of_nothing(tmp_path):
    (tmp_path / "submissions").mkdir()
    page = render_board(build_board(tmp_path / "submissions"))
    assert page.count("No submission yet") == 2
    assert "<table" not in page
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        build_board(tmp_path / "nowhere")


def test_a_board_of_one_and_of_gaps():
    bare = made_up_row(
        1, metrics=dict.fromkeys(board_of([])["metrics"]), rank=None, subtasks=["single_rule"] * 11
    )
    page = render_board(board_of([bare]))
    assert page.count("<tr class=") == 1
    assert "Tokens</button>" not in page
    assert "Recall@10" not in page.partition("How to read")[0]
    assert page.count("No submission yet") == 1


def test_every_string_is_escaped():
    fields = (
        "submission",
        "name",
        "submitter",
        "date",
        "model",
        "description",
        "hardware",
        "run_id",
        "scale",
    )
    row = made_up_row(0, **dict.fromkeys(fields, EVIL), subtasks=[EVIL], links={"code": EVIL}, kind=EVIL)
    sealed = {"round": EVIL, "drop": {"value": 0.1, "ci_low": 0.0, "ci_high": 0.2}}
    page = render_board(board_of([{**row, "sealed": sealed, "split": EVIL, "trained": EVIL}]))
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 1
    assert "49" not in page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "{{7*7}}" in page
    quotes = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "\"'`" not in quotes


def test_the_page_loads_nothing(board):
    page = render_board(board)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)
    assert not re.search(r"url\(|@import|innerHTML|eval\(", page)
    assert "default-src 'none'" in page


def test_a_disk_or_place_that_takes_nothing_is_one_line(tmp_path):
    """No traceback, an exit code, and what was there is there."""
    (tmp_path / "submissions").mkdir()
    (tmp_path / "file").write_text("mine")
    words = [sys.executable, "-m", "rwbench.cli.app"]

    def run(*more, **streams):
        return subprocess.run([*words, *map(str, more)], stderr=subprocess.PIPE, text=True, **streams)

    done = run("board", tmp_path / "submissions", "--out", tmp_path / "file")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and str(tmp_path / "file") in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    with open("/dev/full", "w") as full:
        done = run("board", tmp_path / "submissions", stdout=full)
    assert (done.returncode, done.stderr) == (1, "error: the disk is full\n")
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["board.json", "index.html"]
