"""Training by reward: the command runs, and what it writes is what its page says."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ruleworld_data.environments import EnvConfig, score
from ruleworld_data.prompts import parse_template
from ruleworld_data.text import parse_rule_fol
from rwbench.models import base_folder
from rwbench.zoo import grpo

ROOT = Path(__file__).parents[3]
BASE = base_folder("tiny")
COMMAND = [sys.executable, "-m", "rwbench.zoo.grpo"]


def test_the_page_has_the_committed_curve():
    """Reward with its interval, and searches an episode, at every evaluation of both trainings."""
    record = json.loads((ROOT / "benchmarks/results/grpo/curve.json").read_text())
    page = (ROOT / "ruleworld-data/docs/environments.md").read_text()
    for name, title in (("grpo", "GRPO"), ("supervised", "golden episodes")):
        for row in record["curves"][name]:
            cells = (
                title if row["step"] else "the model as it is",
                f"{row['step']}",
                f"{row['minutes']:.1f}",
                f"{row['reward']:.2f} ({row['low']:.2f}-{row['high']:.2f})",
                f"{row['searches']:.1f}",
            )
            assert f"| {' | '.join(cells)} |" in page, cells


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("trl"), reason='trl is missing: pip install "./benchmarks[reward]"')
def test_two_steps_of_each_method(tmp_path):
    words = ["--out", tmp_path, "--steps", 2, "--every", 1]
    words += ["--test", 10, "--prompts", 2, "--group", 4, "--tokens", 40]
    subprocess.run([*COMMAND, *map(str, words)], check=True, cwd=tmp_path)
    found = json.loads((tmp_path / "curve.json").read_text())
    assert found["environment"]["seed"] != found["held_out_seed"]
    for method in ("grpo", "supervised"):
        curve = found["curves"][method]
        assert [row["step"] for row in curve] == [0, 1, 2]
        assert all(0 <= row["low"] <= row["reward"] <= row["high"] <= 1 for row in curve)
        assert (tmp_path / method / "model.safetensors").is_file()
    assert found["curves"]["grpo"][0] == found["curves"]["supervised"][0], "both begin with the same model"


def test_a_model_is_asked_with_its_own_prompt():
    """Rules one a line, the question, and golden answers with the model's own marks, which score the maximum."""
    template = parse_template((BASE / "prompt.toml").read_bytes(), "prompt.toml")
    config = EnvConfig(**grpo.DEFAULT)
    for row in grpo._rows(config, 4, template):
        record = json.loads(row["metadata"])
        rules, question, end = row["prompt"].rpartition("\n\n")[0], *row["prompt"].split("\n")[-2:]
        assert len({parse_rule_fol(rule) for rule in rules.splitlines()}) == config.pool_size
        assert question == record["question"] and end == ""
        assert row["completion"].count("<step>[Step ") == len(record["conclusions"])
        assert score(template.clean(row["completion"]), record).reward == 1.0


@pytest.mark.parametrize(
    "words, said",
    [
        (["--model", "."], "no model '.'"),
        (["--method", "ppo"], "grpo or supervised, got ppo"),
        (["--set", "pool_size=9999999"], "pool_size must be from"),
    ],
    ids=["no model", "method", "dial"],
)
def test_what_cannot_be_trained_is_refused(tmp_path, words, said):
    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path), *map(str, words)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
