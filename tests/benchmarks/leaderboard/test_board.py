"""The board as data and page: ranks, tables, badges, nothing and gaps; in a real browser where there is one."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from rwbench.leaderboard.board import build_board, order, ranks
from rwbench.leaderboard.judge import RELEASED, cell_of, check_spec
from rwbench.leaderboard.page import render_board
from rwbench.leaderboard.submissions import read_run, submit
from rwbench.score.samples import read_samples
from rwbench.score.stats import paired_difference, sample_clusters

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;{{7*7}}"


@pytest.fixture(scope="module")
def board(submissions):
    return build_board(submissions)


def made_up_row(number, **changes):
    """A row as `row_of` makes it, with numbers of its own."""
    value = (number * 37 % 101) / 101
    estimate = {"value": value, "ci_low": max(0, value - 0.05), "ci_high": min(1, value + 0.05), "n": 550}
    row = dict.fromkeys(("tokens", "calls", "hardware", "sealed"))
    row |= {
        "submission": f"2026-11-28_m{number}",
        "track": "answers",
        "name": f"Method {number}",
        "links": {},
    }
    row |= {"submitter": "Team", "date": "2026-11-28", "kind": "contender", "model": "none", "n": 550}
    row |= {"open_weights": "none", "description": "Does things.", "scale": "paper", "split": "mini"}
    row |= {"data": "1.1.0"}
    row |= {"trained": "yes" if number % 2 else "no", "representation": "nl" if number % 3 else "fol"}
    row |= {"subtasks": ["single_rule"], "pool_size": (100, 1_000, 10_000)[number % 3], "rank": number + 1}
    row |= {"cost_usd": None if number % 4 else number / 10, "badges": ["claimed"], "run_id": "0" * 12}
    metrics = dict.fromkeys(("exact_match", "strict_match", "recall@1", "recall@10"), estimate)
    return row | {"metrics": {**metrics, "recall@100": None}} | changes


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


@pytest.fixture
def next_data(monkeypatch):
    """A version of the data that can be generated, as if it were released."""
    monkeypatch.setitem(RELEASED, "1.2.0", "2026-12-01")
    return "1.2.0"


def test_a_board_of_two_versions_of_the_data(submissions, next_data, runs, tmp_path):
    """Each entry is asked in its own version and ranked in it alone; the newest data come first."""
    root = shutil.copytree(submissions, tmp_path / "submissions")
    spec, samples = read_run([runs["naive"]])
    words = json.loads((root / "2026-11-28_naive/submission.json").read_text()) | {"date": "2026-12-01"}
    del words["spec"]
    words["name"] = "BM25, next data"
    for sample in samples:  # a run of its own: it finds one rule less
        sample["retrieved"] = [search[:-1] for search in sample["retrieved"]]
    with pytest.raises(ValueError, match=r"not before 2026-12-01, when data 1\.2\.0 came out"):
        submit(replace(spec, data=next_data), samples, words | {"date": "2026-11-30"}, root)
    submit(replace(spec, data=next_data), samples, words, root)
    rows = [row for row in build_board(root)["rows"] if row["track"] == "retrieval"]
    shown = [(row["data"], row["name"], row["rank"]) for row in rows if row["kind"] == "contender"]
    assert shown[0] == ("1.2.0", "BM25, next data", 1) and {data for data, *_ in shown[1:]} == {"1.1.0"}
    page = render_board(build_board(root))
    assert "<option>tiny, mini, data 1.2.0</option><option>tiny, mini, data 1.1.0</option>" in page
    with pytest.raises(
        ValueError, match=r"spec\.data is not on the board, got '1\.3\.0'; run it with 1\.2\.0"
    ):
        check_spec(spec.to_dict() | {"data": "1.3.0"})


def test_a_ceiling_that_answers_frames_both_tables_each_in_its_cell(board):
    page = render_board(board)
    answering, _, finding = page.partition('<section id="retrieval">')
    assert re.findall(r"<summary>(.*?)</summary>", answering) == ["Symbolic solver"]
    names = re.findall(r"<summary>(.*?)</summary>", finding)
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
    assert page.count("No submission yet") == 2 and "<table" not in page
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


PROBE = """<script>
const out = {errors: []};
addEventListener("error", (e) => out.errors.push(e.message));
const section = document.getElementById("answers"), table = section.querySelector("table");
const head = (text) => [...table.querySelectorAll("th button")].find((b) => b.textContent.startsWith(text));
const column = (text) => head(text).parentNode.cellIndex;
const rows = () => [...table.tBodies[0].rows].filter((r) => !r.hidden);
const shown = (cell) => cell.dataset.sort ?? cell.textContent.trim();
const values = (text) => rows().map((r) => shown(r.cells[column(text)]));
const put = (field, value, event) => { field.value = value; field.dispatchEvent(new Event(event)); };
const pick = (name, value) => put(section.querySelector(`select[data-column=${name}]`), value, "change");
const names = () => rows().map((r) => r.querySelector("summary").textContent);
const count = () => section.querySelector(".count").textContent;
%s
const done = document.createElement("p"); done.id = "probe"; done.textContent = JSON.stringify(out);
document.body.append(done);
</script></body>"""


def browse(rows, script, tmp_path, address=""):
    """What a script of the page's own browser puts into ``out``; nothing may be logged to its console."""
    page = tmp_path / "index.html"
    page.write_text(render_board(board_of(rows)).replace("</body>", PROBE % script))
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*words, "--window-size=1400,900", page.as_uri() + address],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
        timeout=120,
    )
    out = json.loads(unescape(re.search(r'<p id="probe">(.*?)</p>', done.stdout, flags=re.S)[1]))
    assert out.pop("errors") == [] and "CONSOLE" not in done.stderr
    return out


@in_a_browser
def test_sorting_and_filtering(tmp_path):
    out = browse(
        [made_up_row(number) for number in range(12)],
        """
        head("Exact match").click(); out.down = values("Exact match").map(Number);
        out.way = head("Exact match").parentNode.ariaSort;
        head("Exact match").click(); out.up = values("Exact match").map(Number);
        head("Cost").click(); out.cost = values("Cost");
        head("Cost").click(); out.cheap = values("Cost");
        head("Method").click(); out.names = names(); out.hash = location.hash;
        pick("representation", "FOL"); out.fol = count(); out.forms = values("Rules");
        pick("pool", "1,000"); out.none = count();
        pick("pool", ""); pick("representation", "");
        const search = section.querySelector("input"); put(search, "METHOD 11", "input"); out.searched = names();
        put(search, "nobody", "input"); out.nobody = count();
        """,
        tmp_path,
    )
    assert out["down"] == sorted(out["down"], reverse=True) == out["up"][::-1] and out["way"] == "descending"
    # missing figures stay at the end both ways
    assert out["cost"] == ["0.8", "0.4", "0.0", *[""] * 9] and out["cheap"] == [
        "0.0",
        "0.4",
        "0.8",
        *[""] * 9,
    ]
    assert out["names"] == sorted(out["names"]) and "answers.sort=1_up" in out["hash"]
    assert out["fol"] == "4 of 12" and set(out["forms"]) == {"FOL"} and out["none"] == "0 of 12"
    assert out["searched"] == ["Method 11"] and out["nobody"] == "0 of 12"
