import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import RunRecipe, recipes
from rwbench.retrievers.bm25 import BM25

from ..command import rwbench


def test_what_asks_no_model_loads_none():
    """Retrieval alone works, and starts at once, where neither torch nor dynarule is installed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'peft', 'transformers', 'dynarule', 'openai')))\n"
        "from rwbench.backends import Backend; from rwbench.methods import Method\n"
        "from rwbench.recipes import recipes; from rwbench.retrievers import Retriever\n"
        "for family in (Backend.registry, Method.registry, recipes, Retriever.registry): assert family.items()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def quick():
    """A recipe of two runs without the encoder."""

    def function(options):
        """Two quick runs."""
        return [options.spec(m, "nl", 100, "question") for m in (Solver(), Retrieve(BM25()))]

    recipes.items()
    recipes.add("quick", RunRecipe("quick", function))
    yield "quick"
    recipes.remove("quick")


def test_run_prints_a_table_and_writes_a_page(quick, tmp_path):
    result = rwbench("run", quick, "--scale", "tiny", "--limit", 1, "--out", tmp_path, code=0)
    assert "Symbolic solver" in result.stdout
    assert "11 questions (11 sub-tasks, split mini, 1 per sub-task, folds" in " ".join(result.stdout.split())
    assert "Symbolic solver" in (tmp_path / "quick.html").read_text()
    assert "22/22" in result.stderr
    again = rwbench("run", quick, "--scale", "tiny", "--limit", 1, "--out", tmp_path)
    assert "0 samples" in again.stderr
    assert again.stdout == result.stdout


def test_json_is_one_object_and_nothing_else(quick, tmp_path):
    words = ("--scale", "tiny", "--data-version", "1.2", "--limit", 1, "--out", tmp_path)
    result = rwbench("run", quick, *words, "--json")
    value = json.loads(result.stdout)
    assert {run["spec"]["data"] for run in value["runs"]} == {"1.2.0"}
    assert [run["n"]["scored"] for run in value["runs"]] == [11, 11]
    assert value["report"].endswith("quick.html")
    listed = json.loads(rwbench("list", "--json").stdout)
    assert "smoke" in listed["recipes"]
    assert {"bm25", "dense", "random", "rrf"} <= set(listed["retrievers"])
    reported = json.loads(rwbench("report", tmp_path, "--json").stdout)
    assert sorted(r["run_id"] for r in reported["runs"]) == sorted(r["run_id"] for r in value["runs"])


def test_several_processes_give_the_same_results(quick, tmp_path):
    """They are told which runs, not which recipe."""
    hashes = []
    for jobs in (1, 2):
        out = ("--jobs", jobs, "--json", "--out", tmp_path / str(jobs))
        done = rwbench("run", quick, "--scale", "tiny", "--limit", 1, *out, code=0)
        runs = json.loads(done.stdout)["runs"]
        hashes.append([(run["run_id"], run["samples_sha256"], run["pool_sha256"]) for run in runs])
    assert hashes[0] == hashes[1] and len(hashes[0]) == 2


MISTAKES = (Path(__file__).with_name("mistakes.txt")).read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("line", MISTAKES)
def test_user_errors_leave_with_2_and_no_traceback(line, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, message = line.split(" | ")
    assert (
        message
        in rwbench(*shlex.split(words.format(*(finished[0] / run for run in finished[1]))), code=2).stderr
    )
    assert os.listdir(tmp_path) == []


def test_failed_questions_leave_with_1(quick, tmp_path, monkeypatch):
    def fail(self, batch, top_k):
        raise RuntimeError("no luck")
        yield

    monkeypatch.setattr(Solver, "answer", fail)
    result = rwbench("run", quick, "--scale", "tiny", "--limit", 1, "--out", tmp_path, code=1)
    assert "11 questions failed" in result.stderr
    assert "11 questions failed" in (tmp_path / "quick.html").read_text()


def test_an_interrupt_keeps_samples_and_says_how_to_go_on(quick, tmp_path, monkeypatch):
    once = Solver.answer

    def interrupted(self, batch, top_k):
        for output, (_, question) in zip(once(self, batch, top_k), batch, strict=True):
            if question.subtask == "multi_rule_5":
                raise KeyboardInterrupt
            yield output

    monkeypatch.setattr(sys, "argv", ["rwbench", "run", quick, "--limit", "1"])
    monkeypatch.setattr(Solver, "answer", interrupted)
    result = rwbench("run", quick, "--scale", "tiny", "--limit", 1, "--out", tmp_path, code=1)
    assert "To go on: rwbench run quick --limit 1" in result.stderr
    (samples,) = tmp_path.glob("*/samples.jsonl")
    assert len(samples.read_text().splitlines()) == 4


FULL = ("rwbench.score.samples.SampleLog.append", "ruleworld_data.io.write_whole")


@pytest.mark.parametrize("writing", FULL, ids=["a sample", "the page"])
def test_a_full_disk_says_so(quick, tmp_path, monkeypatch, writing):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    words = ("run", quick, "--scale", "tiny", "--limit", "1", "--out", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(writing, full)
        patch.setattr(sys, "argv", ["rwbench", *map(str, words)])
        result = rwbench(*words)
    told = f"No space left on device; finished samples are kept. To go on: rwbench run {quick} --scale tiny"
    assert result.exit_code == 1 and told in result.stderr
    assert rwbench(*words).exit_code == 0
    monkeypatch.setattr("ruleworld_data.io.write_whole", full)
    assert rwbench("report", tmp_path).exception.errno == errno.ENOSPC  # which `main` says in one line
