"""Each evaluation tool runs our task from an installed wheel, in an environment of its own (minutes each).

The tests of a tool run its own Python interface. Of the commands in docs/plugins.md only lm-eval's runs without a
network: inspect's fetches a vocabulary to count tokens, lighteval's files of other tasks, before the first question.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# inspect asks for an older fsspec and lighteval for an older xxhash than constraints.txt holds.
TOOLS = {
    "inspect": ["torch", "accelerate", "transformers"],
    "lm-eval": ["torch", "accelerate"],
    "lighteval": ["torch"],
    "mteb": ["torch"],
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_the_task_runs_from_the_wheel(tool, tmp_path):
    python = tmp_path / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    if TOOLS[tool]:  # first, as in the Makefile: the CPU build
        subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *TOOLS[tool]], check=True)
    subprocess.run([*pip, f"{ROOT / 'ruleworld-data'}[{tool}]", "pytest"], check=True)
    test = ROOT / "tests/data/plugins" / f"test_{tool.replace('-', '_')}.py"
    words = [python, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", ROOT, test]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout, done.stdout
