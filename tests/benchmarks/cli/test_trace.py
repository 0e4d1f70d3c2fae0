"""`rwbench trace`: one question as it went, against the run's own files and the world's proofs."""

import json
import re

import pytest
from ruleworld_data.questions import training_text
from rwbench.cli.app import app
from rwbench.cli.trace import describe
from rwbench.methods import Method, Output, StepTrace, component
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.run.runner import run_spec
from rwbench.score.results import find_results, find_samples
from typer.testing import CliRunner


@component
class Walker(Method):
    """Finds the gold rules of every step at the second place, but those of the last step not at all."""

    name = "walker-of-tests"
    stepwise = True

    def answer(self, batch, top_k):
        for pool, question in batch:
            other = next(int(rule) for rule in pool.ids if rule not in question.gold)
            found = [[other, *gold] for gold in question.gold_steps[:-1]] + [[other]]
            text = training_text(question.row, pool.representation).replace("<search>", "")
            parts = re.split(r"(?=\[Step)", text)[1:]
            steps = [StepTrace(retrieved=ids, text=part) for ids, part in zip(found, parts, strict=True)]
            yield Output(question.id, found, answers=["999"], text="".join(parts), trace=steps)


@pytest.fixture(scope="module")
def runs(workspace, tmp_path_factory):
    options = Options(workspace, limit=2)
    out = tmp_path_factory.mktemp("runs")
    for method in (Walker(), Retrieve(BM25())):
        run_spec(options.spec(method, "nl", 100, "question"), workspace, out)
    yield out
    Method.registry.remove("walker-of-tests")


def rwbench(*words):
    return CliRunner().invoke(app, ["trace", *map(str, words)])


def test_each_step_shows_what_was_found_and_what_was_not(runs, workspace):
    done = rwbench(runs, "--method", "walker-of-tests", "--subtask", "multi_hop_3", "--json")
    told = json.loads(done.stdout)
    question = workspace.questions("multi_hop_3", "mini")[0]
    rules = workspace.rules("mini")
    assert (told["id"], told["question"], told["right"]) == (question.id, question.text, False)
    assert [step["written"].split("] ")[0] for step in told["steps"]] == ["[Step 1", "[Step 2", "[Step 3"]
    for step, gold in zip(told["steps"][:-1], question.gold_steps, strict=False):
        ranks = [(rule["rank"], rule["gold"]) for rule in step["found"]]
        assert ranks == [(1, False), *[(2 + i, True) for i in range(len(gold))]]
        assert [rule["text"] for rule in step["found"][1:]] == rules.texts(gold, "nl")
        assert step["not_found"] == []
    assert told["steps"][-1]["not_found"] == rules.texts(sorted(question.gold_steps[-1]), "nl")


def test_the_text_marks_gold_rules_and_ends_with_the_answer(runs, workspace):
    question = workspace.questions("multi_hop_2", "mini")[10]
    told = rwbench(runs, "--method", "walker-of-tests", "--question", question.id, "--top", 1).stdout
    lines = told.splitlines()
    assert lines[0].endswith("100 rules, NL, split mini")
    assert lines[1] == question.id and question.text in lines
    assert sum("2. gold  If" in line or "2. gold  Every" in line for line in lines) >= 1
    assert lines[-1] == f"answer: 999 (wrong, gold {', '.join(question.answers)})"


def test_whether_searches_are_steps_is_the_method_s_to_say(runs, workspace):
    """Not their number: an answer may search for its first step only, and a loop may search often for none."""
    run = next(r for r in find_results(runs) if r["spec"]["method"]["name"] == "walker-of-tests")
    samples = find_samples(runs, run["run_id"])
    sample = next(s for s in samples if s["subtask"] == "multi_hop_3")
    first = describe(sample | {"retrieved": [[]], "trace": sample["trace"][:1]}, workspace, "mini", "nl", 1)
    missed = first["steps"][0]["not_found"]
    assert len(missed) == len(sample["gold_rules"][0]) < sum(map(len, sample["gold_rules"]))
    loose = sample | {"scores": {k: v for k, v in sample["scores"].items() if not k.startswith("step_")}}
    for step in describe(loose, workspace, "mini", "nl", 1)["steps"]:
        of_all = len([rule for rule in step["found"] if rule["gold"]]) + len(step["not_found"])
        assert of_all == len({rule for gold in sample["gold_rules"] for rule in gold})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "ragg"), "no run of 'ragg'"),
        (("--method", "retrieve", "--size", 7), "there are: retrieve nl 100, walker-of-tests nl 100"),
        (("--method", "retrieve", "--question", "x"), "has no question x"),
        (("--method", "retrieve", "--subtask", "multi_hop_9"), "has no question of multi_hop_9"),
    ],
)
def test_mistakes_say_what_there_is(runs, words, message):
    done = rwbench(runs, *words)
    assert done.exit_code == 2 and message in done.stderr
