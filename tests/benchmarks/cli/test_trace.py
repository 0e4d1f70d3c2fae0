"""`rwbench trace`: one question as it went, against the run's own files and the world's proofs."""

import json
import re

import pytest
from ruleworld_data.questions import training_text
from rwbench.cli.app import app
from rwbench.methods import Method, Output, StepTrace, component
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.run.runner import run_spec
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
