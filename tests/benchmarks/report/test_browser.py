"""The sample browser: what is packed, its limits, and the page in a real browser where one is at hand."""

import base64
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import zlib

import pytest
from ruleworld_data.questions import training_text
from rwbench.cli.app import app
from rwbench.methods import Method, Output, component
from rwbench.methods.retrieve import Retrieve
from rwbench.report import browser as browser_module
from rwbench.report.browser import build_browser
from rwbench.report.page import render_page
from rwbench.retrievers.bm25 import BM25
from rwbench.run.folder import read_manifests
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from typer.testing import CliRunner

EVIL = "</script><img src=x onerror=alert(1)><!-- &amp; '\""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@component
class Scribe(Method):
    """Write the gold proof, with a wrong box where there is one answer; hostile text in front."""

    name = "scribe-of-tests"

    def answer(self, batch, top_k):
        for pool, question in batch:
            answers = list(question.answers)
            if len(answers) == 1:
                answers = ["999"]
            text = EVIL + training_text(question.row, pool.representation)
            yield Output(question.id, retrieved=[list(question.gold)], answers=answers, text=text)


@pytest.fixture(scope="module")
def runs(workspace, tmp_path_factory):
    from rwbench.recipes import Options

    options = Options(workspace.source, limit=2)
    out = tmp_path_factory.mktemp("runs")
    methods = (Scribe(), Retrieve(BM25()))
    results = [run_spec(options.spec(method, "nl", 100, "question"), workspace, out) for method in methods]
    yield results, out
    Method.registry.remove("scribe-of-tests")


def unpack(part):
    return json.loads(zlib.decompress(base64.b64decode(part), -15))


def test_parts_hold_the_samples_joined_with_their_questions_and_rules(runs, workspace):
    results, out = runs
    packed = build_browser(list(zip(results, ["scribe", "bm25"], strict=True)), out)
    assert packed.notes == []
    assert [run["count"] for run in packed.runs] == [22, 22]
    questions, rules = unpack(packed.parts["questions"]), unpack(packed.parts["rules"])
    rows = unpack(packed.parts[f"run-{results[1]['run_id']}"])
    for row, sample in zip(rows, read_samples(out / results[1]["run_id"] / "samples.jsonl"), strict=True):
        asked = next(q for q in workspace.questions(sample["subtask"], "mini") if q.id == sample["id"])
        assert questions[row["question"]]["text"] == asked.text
        (search,) = row["searches"]
        assert search["top"] == sample["retrieved"][0][:10]
        assert len(search["top"]) + search["more"] == len(sample["retrieved"][0])
        for rule, place in search["gold"].items():
            assert sample["retrieved"][0][place - 1] == int(rule)
        (text,) = workspace.rules("mini").texts([search["top"][0]], "nl")
        assert rules[f"tiny-0-1.1-mini/{search['top'][0]}"][1] == text
        assert row["error_class"] is None
    # Ten wrong answers: single rules and hops; their proofs apply every rule, so only the result is wrong.
    assert packed.errors == {results[0]["run_id"]: {"correct": 14, "incorrect_use": 8}}


def test_limits_are_told(runs, monkeypatch):
    results, out = runs
    monkeypatch.setattr(browser_module, "MAX_SAMPLES", 5)
    monkeypatch.setattr(browser_module, "MAX_TEXT", 10)
    packed = build_browser(list(zip(results, ["scribe", "bm25"], strict=True)), out)
    assert "scribe: the first 5 of 22 samples" in packed.notes
    row = unpack(packed.parts[f"run-{results[0]['run_id']}"])[0]
    assert row["output"] == EVIL[:10] + " [cut]"
    assert sum(packed.errors[results[0]["run_id"]].values()) == 22  # counted over all, shown or not
    monkeypatch.setattr(browser_module, "MAX_BYTES", 100)
    packed = build_browser(list(zip(results, ["scribe", "bm25"], strict=True)), out)
    assert packed.parts == {}
    assert [note.split(": ")[1].split(",")[0] for note in packed.notes] == ["left out", "left out"]


def test_missing_samples_and_other_data_are_told(runs, tmp_path):
    results, out = runs
    assert build_browser([(results[0], "scribe")], tmp_path).notes == [
        "scribe: no samples.jsonl beside its results"
    ]
    other = copy.deepcopy(results[1:])
    other[0]["spec"]["data"] = "0.0"
    packed = build_browser([(other[0], "bm25")], out)
    assert "the runs used data 0.0" in packed.notes[0]
    assert "--data" in packed.notes[0]
    assert unpack(packed.parts[f"run-{other[0]['run_id']}"])[0]["rules"]
    page = render_page(results, "t", "c", folder=tmp_path)
    assert "No samples to show" in page


def test_no_string_of_a_sample_reaches_the_markup(runs):
    results, out = runs
    page = render_page(results, "t", "c", folder=out)
    assert "onerror" not in page
    assert "innerHTML" not in page
    assert not re.search(r"https?://|url\(|@import", page)
    assert page.count("<script") == page.count("</script>") == 1 + 4


PROBE = """<script>
(async () => {
  const at = (id) => document.getElementById(id), out = {errors: []};
  const pause = (ms) => new Promise((r) => setTimeout(r, ms));
  const wait = async (test) => { for (let i = 0; i < 200 && !test(); i++) await pause(20); };
  const counted = () => at("b-count").textContent.includes("samples");
  addEventListener("error", (e) => out.errors.push(e.message));
  at("samples").scrollIntoView();
  await wait(counted);
  out.all = at("b-count").textContent;
  at("b-result").value = "incorrect_use"; at("b-result").dispatchEvent(new Event("change"));
  out.wrong = at("b-count").textContent;
  at("b-text").value = "onerror=alert"; at("b-text").dispatchEvent(new Event("input"));
  await pause(300);
  out.searched = at("b-count").textContent;
  const first = document.querySelector("#b-list details"); first.open = true;
  await pause(100);
  out.detail = first.textContent; out.gold = first.querySelectorAll("li.gold").length;
  out.images = document.images.length;
  const head = [...document.querySelectorAll("main table th button")].find((b) => b.textContent === "Recall@1, %");
  head.click();
  const column = head.parentNode.cellIndex;
  out.sorted = [...head.closest("table").tBodies[0].rows].map((r) => Number(r.cells[column].dataset.sort));
  const done = document.createElement("p"); done.id = "probe"; done.textContent = JSON.stringify(out);
  document.body.append(done);
})();
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
def test_the_page_works_in_a_browser(runs, tmp_path):
    """From disk: opens the samples, filters, searches, unfolds one with hostile text, sorts a table."""
    results, out = runs
    page = render_page(results, "t", "c", folder=out).replace("</body>", PROBE)
    # The page's policy lets only its own script run; here the probe too.
    probe = base64.b64encode(hashlib.sha256(PROBE[8:].partition("</script>")[0].encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{probe}' ", 1)
    (tmp_path / "page.html").write_text(page)
    words = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(
        [*words, (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    from html import unescape

    found = json.loads(unescape(re.search(r'<p id="probe">(.*?)</p>', done.stdout, flags=re.S)[1]))
    assert found["errors"] == []
    assert found["all"] == "22 of 22 samples"
    assert found["wrong"] == found["searched"] == "8 of 22 samples"
    assert EVIL in found["detail"]
    assert "999" in found["detail"]
    assert found["gold"] >= 1
    assert found["images"] == 0
    assert found["sorted"] == sorted(found["sorted"], reverse=True)


def test_report_command_writes_the_browser_and_keeps_to_a_recipe(runs, tmp_path):
    results, out = runs
    shutil.copytree(out, tmp_path / "runs")
    made = {"recipe": "paper/table4", "command": "c", "skipped": [], "runs": [results[1]["run_id"]]}
    (tmp_path / "runs" / "paper-table4.recipe.json").write_text(json.dumps(made))
    run = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--json", "--recipe", "paper/table4"])
    assert [r["run_id"] for r in json.loads(run.stdout)["runs"]] == made["runs"]
    page = (tmp_path / "runs" / "report.html").read_text()
    assert f'id="part-run-{results[1]["run_id"]}"' in page
    assert results[0]["run_id"] not in page
    assert "Beside the paper: table4" in page
    assert r"\toprule" in CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--latex"]).stdout
    wrong = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--recipe", "paper/table5"])
    assert wrong.exit_code == 2
    assert "did you mean 'paper/table4'?" in wrong.stderr


def test_a_recipe_that_was_run_in_several_folders_is_one(runs, tmp_path):
    """Folders of folders, as in benchmarks/results: the page of the upper one has the paper's numbers too."""
    results, out = runs
    one, other = results[0]["run_id"], results[1]["run_id"]
    for name, run in (("a", one), ("b", other)):
        shutil.copytree(out / run, tmp_path / name / run)
        made = {
            "recipe": "paper/table4",
            "command": f"run {name}",
            "skipped": [f"a note on {name}"],
            "runs": [run],
        }
        (tmp_path / name / "paper-table4.recipe.json").write_text(json.dumps(made))
    (tmp_path / "a" / "paper-table10.recipe.json").write_text(json.dumps(made | {"recipe": "paper/table10"}))
    found, last = read_manifests(tmp_path)
    assert last.recipe == "paper/table10"
    assert found.model_dump() == {
        "recipe": "paper/table4",
        "command": "run a; run b",
        "skipped": ["a note on a", "a note on b"],
        "runs": [one, other],
    }
    run = CliRunner().invoke(app, ["report", str(tmp_path), "--json", "--recipe", "paper/table4"])
    assert [r["run_id"] for r in json.loads(run.stdout)["runs"]] == [one, other]
    assert "Beside the paper: table4" in (tmp_path / "report.html").read_text()
