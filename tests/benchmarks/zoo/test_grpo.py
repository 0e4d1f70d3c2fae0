"""Training by reward: the command runs, and what it writes is what its page says."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("trl", reason='trl is missing: pip install "./benchmarks[reward]"')


@pytest.mark.slow
def test_two_steps_of_each_method(tmp_path):
    words = [sys.executable, "-m", "rwbench.zoo.grpo", "--out", tmp_path, "--steps", "2", "--every", "1"]
    words += ["--test", "10", "--prompts", "2", "--group", "4", "--tokens", "40", "--set", "pool_size=10"]
    subprocess.run(list(map(str, words)), check=True, cwd=tmp_path)
    found = json.loads((tmp_path / "curve.json").read_text())
    assert found["environment"]["seed"] != found["held_out_seed"]
    for method in ("grpo", "supervised"):
        curve = found["curves"][method]
        assert [row["step"] for row in curve] == [0, 1, 2]
        assert all(0 <= row["low"] <= row["reward"] <= row["high"] <= 1 for row in curve)
        assert (tmp_path / method / "model.safetensors").is_file()
    assert found["curves"]["grpo"][0] == found["curves"]["supervised"][0], "both begin with the same model"


def test_a_folder_without_a_model_is_refused(tmp_path):
    words = [sys.executable, "-m", "rwbench.zoo.grpo", "--out", tmp_path, "--model", tmp_path]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 2 and "no model in" in done.stderr
