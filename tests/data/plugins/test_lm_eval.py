"""lm-evaluation-harness runs our tasks for real, and reports what our scorer reports."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruleworld_data.plugins import plugin_path
from ruleworld_data.scoring import score_output
from ruleworld_data.spec import SUBTASKS

from ..cases import question_table

lm_eval = pytest.importorskip("lm_eval", reason='lm-eval is missing: pip install "ruleworld-data[lm-eval]"')
OPTIONS = {"scale": "tiny", "split": "mini", "pool_size": 10}
BASE = Path(__file__).parents[3] / "benchmarks/src/rwbench/models/tiny/base"
METRICS = ("exact_match", "strict_match", "missing_box")


def evaluate(model, tasks, options=OPTIONS, **more):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(plugin_path("lm-eval")), include_defaults=False, metadata=options)
    return lm_eval.simple_evaluate(
        model=model, tasks=tasks, task_manager=manager, bootstrap_iters=0, log_samples=True, **more
    )


def ours(samples, subtask, options=OPTIONS) -> dict[str, float]:
    """Score the logged outputs with our scorer and our gold answers."""
    table = question_table(subtask, options["split"], options["scale"])
    answers = dict(zip(table["id"].to_pylist(), table["answers"].to_pylist(), strict=True))
    scores = [score_output(s["resps"][0][0], answers[s["doc"]["id"]]) for s in samples]
    return {metric: sum(float(getattr(s, metric)) for s in scores) / len(scores) for metric in METRICS}


def theirs(results) -> dict[str, float]:
    return {metric: results[f"{metric},none"] for metric in METRICS}


def writer():
    """A stand-in for a model: right, half right, wrong, or without a box, by turns of a fixed die."""
    from lm_eval.api.model import LM

    class Writer(LM):
        def generate_until(self, requests, disable_tqdm=False):
            die, outputs = random.Random(7), []
            for request in requests:
                answers = list(request.doc["answers"])
                fall = die.randrange(4)
                if fall == 1:
                    answers[-1] = "nothing"
                outputs.append(
                    ["no box"] if fall == 2 else [rf"so \boxed{{{', '.join(answers * (1 + (fall == 3)))}}}"]
                )
            return [output[0] for output in outputs]

        def loglikelihood(self, requests, disable_tqdm=False):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    return Writer()


def test_the_model_in_the_box_gets_our_score_to_the_last_digit():
    """It was trained to answer, with another prompt than the tools': some answers are right, some are not."""
    asked = {"pretrained": str(BASE), "device": "cpu", "dtype": "float32"}
    found = evaluate(
        "hf",
        ["ruleworld_single_rule"],
        OPTIONS | {"rules": "gold"},
        model_args=asked,
        gen_kwargs="max_gen_toks=64",
        limit=6,
    )
    samples = found["samples"]["ruleworld_single_rule"]
    scores = theirs(found["results"]["ruleworld_single_rule"])
    assert scores == ours(samples, "single_rule")
    assert 0 < scores["exact_match"] < 1
    assert len({s["resps"][0][0] for s in samples}) == len(samples) == 6


def test_the_group_has_every_subtask_and_weighs_them_the_same():
    found = evaluate(writer(), ["ruleworld"])
    expected = {name: ours(found["samples"][f"ruleworld_{name}"], name) for name in SUBTASKS}
    assert {name: theirs(found["results"][f"ruleworld_{name}"]) for name in SUBTASKS} == expected
    assert len({scores["exact_match"] for scores in expected.values()}) > 5
    for metric in ("exact_match", "strict_match"):
        mean = sum(scores[metric] for scores in expected.values()) / len(SUBTASKS)
        assert found["groups"]["ruleworld"][f"{metric},none"] == pytest.approx(mean, abs=1e-12)


@pytest.mark.slow
def test_the_command_of_the_page_runs(tmp_path):
    """lm-eval reads its own thousands of task files first; a model without weights stands in for yours."""
    page = Path(__file__).parents[3] / "ruleworld-data" / "docs" / "plugins.md"
    (command,) = re.findall(r"```sh\n(lm-eval run .*?)```", page.read_text(), flags=re.S)
    command = command.replace("--model hf --model_args pretrained=my-model", "--model dummy")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"ruleworld_multi_hop_2 *\|.*\|exact_match *\|", done.stdout)
