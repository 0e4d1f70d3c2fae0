"""Runs that ask a model: taken up after a kill at any byte, stopped by a dead endpoint or a full disk, never wrong."""

import dataclasses
import json
import sys

import pytest
from rwbench.backends.local import Local
from rwbench.methods.prompting import Prompting
from rwbench.methods.rag import RAG
from rwbench.methods.solver import Solver
from rwbench.recipes import RunRecipe, recipes
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.pools import pools_of
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples

from ..command import rwbench
from ..script import script


def cut_spec(options, method, top_k=5, scope="question", size=100):
    spec = options.spec(method, "nl", size, scope)
    return dataclasses.replace(
        spec, top_k=top_k, subtasks=("single_rule", "multi_rule_2", "multi_hop_2"), limit=3
    )


@pytest.mark.parametrize("scope", ["question", "batch", "fold"])
def test_a_cut_run_makes_the_same_batches(scope, model_folder, options, workspace, tmp_path, monkeypatch):
    """Nine questions, four a batch or three of a fold: what is left after a cut is asked in the company it had."""
    model = Local.of(str(model_folder), batch_size=4)
    method = RAG(model=model, retriever=BM25(), max_new_tokens=6)
    spec = cut_spec(options, method, scope=scope, size=100 if scope == "question" else 1_000)
    wanted = run_spec(spec, workspace, tmp_path / "whole")
    whole = (tmp_path / "whole" / spec.run_id / "samples.jsonl").read_bytes()
    batches = []
    generate = Local.generate

    def noted(self, prompts, decoding):
        batches.append(tuple(prompt.text for prompt in prompts))
        return generate(self, prompts, decoding)

    monkeypatch.setattr(Local, "generate", noted)
    run_spec(spec, workspace, tmp_path / "again")
    undisturbed = list(batches)
    sizes = [3, 3, 3] if scope == "fold" else [4, 4, 1]
    assert [len(batch) for batch in undisturbed] == sizes
    lines = whole.splitlines(keepends=True)
    for kept, torn in ((0, 10), (3, 0), (4, 200), (6, 1), (8, 0)):
        batches.clear()
        folder = tmp_path / f"cut{kept}" / spec.run_id
        folder.mkdir(parents=True)
        (folder / "samples.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:torn])
        results = run_spec(spec, workspace, folder.parent)
        assert results["samples_sha256"] == wanted["samples_sha256"]
        assert results["metrics"] == wanted["metrics"]
        assert batches == undisturbed[kept // sizes[0] :]


def test_floors_and_ceilings_get_the_rules_they_should(options, workspace, tmp_path):
    """What stands in the prompt: the whole pool, the gold rules, five random ones, or none."""
    methods = {
        "pool": lambda model: Prompting(model=model),
        "gold": lambda model: Prompting(model=model, rules="gold"),
        "none": lambda model: Prompting(model=model, rules="none"),
        "random": lambda model: RAG(model=model, retriever=Random()),
        "best two": lambda model: RAG(model=model, retriever=Random(), in_prompt=2),
    }
    asked = {name: [] for name in methods}
    for name, make in methods.items():
        model = script(f"keep-{name}", lambda prompt, seen=asked[name]: seen.append(prompt) or "\\boxed{1}")
        spec = dataclasses.replace(cut_spec(options, make(model)), subtasks=("multi_rule_3",), limit=2)
        run_spec(spec, workspace, tmp_path)
        pools = pools_of(spec, workspace)
    rules = workspace.rules("mini")
    for number, pool in enumerate(pools):
        (question,) = pool.questions
        found = {name: [t for t in pool.texts if t in prompts[number]] for name, prompts in asked.items()}
        assert found["pool"] == [*pool.texts]
        assert sorted(found["gold"]) == sorted(rules.texts(sorted(question.gold), "nl"))
        assert len(found["random"]) == 5 and len(found["best two"]) == 2
        assert set(found["best two"]) <= set(found["random"])
        assert found["none"] == [] and "not given" in asked["none"][number]
        assert all(question.text in prompts[number] for prompts in asked.values())


@pytest.fixture
def answering(serve):
    """A server, and a recipe of three runs, of which two ask it."""

    def function(options):
        """Three runs."""
        rows = [Prompting(model=options.models[0], rules=rules) for rules in ("gold", "none")]
        return [options.spec(method, "nl", 100, "question") for method in (*rows, Solver())]

    recipes.items()
    recipes.add("few", RunRecipe("few", function))
    yield serve(lambda prompt, nth: "\\boxed{1}")
    recipes.remove("few")


def run_few(server, out, *more):
    where = ("--scale", "tiny", "--limit", 1, "--out", out)
    return rwbench("run", "few", *where, "--model", "m", "--endpoint", server.url, *more)


def test_a_dry_run_asks_nothing_and_the_command_again_asks_what_is_left(answering, tmp_path):
    plan = run_few(answering, tmp_path / "runs", "--dry-run")
    assert plan.exit_code == 0 and not answering.asked and not (tmp_path / "runs").exists()
    assert "3 runs, 33 samples to do" in plan.stdout and "The first prompt:" in plan.stdout
    done = run_few(answering, tmp_path / "runs", "--json")
    assert done.exit_code == 0, done.output
    for path in sorted(tmp_path.glob("runs/*/samples.jsonl"))[:2]:
        path.write_bytes(path.read_bytes()[:-100])
    seen = json.loads(run_few(answering, tmp_path / "runs", "--dry-run", "--json").stdout)
    assert seen["samples_left"] == 2 and sorted(run["state"] for run in seen["runs"])[1:] == ["resume"] * 2
    again = run_few(answering, tmp_path / "runs", "--json")
    first, second = (
        [run["samples_sha256"] for run in json.loads(ran.stdout)["runs"]] for ran in (done, again)
    )
    assert first == second


def test_a_dead_endpoint_stops_the_run_and_says_how_to_go_on(answering, tmp_path, monkeypatch):
    monkeypatch.setenv("RWBENCH_TRIES", "1")
    monkeypatch.setattr(sys, "argv", ["rwbench", "run", "few", "--limit", "1"])
    answering.close()
    result = run_few(answering, tmp_path)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert "gives no answers (cannot connect" in result.stderr
    assert "finished samples are kept. To go on: rwbench run few --limit 1" in result.stderr
    written = [s for path in tmp_path.glob("*/samples.jsonl") for s in read_samples(path)]
    assert written == []  # none is counted as failed for lack of a server
