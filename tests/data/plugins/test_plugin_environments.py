"""Each evaluation tool runs our task from an installed wheel, in an environment of its own (minutes each).

The tests of a tool run its own Python interface; the commands of docs/plugins.md are run here where the tool can do so
without a network: lighteval's fetches files of other tasks when it starts.
"""

from __future__ import annotations

import os
import re
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
    if tool == "inspect":
        environment["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", inspect_command()], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0 and "exact_match" in done.stdout, done.stdout + done.stderr


def inspect_command() -> str:
    """The line of the page, asking a model that says the same each time, three questions."""
    page = (ROOT / "ruleworld-data/docs/plugins.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^inspect eval .*$", page, flags=re.M)
    return command.replace("openai/gpt-4o-mini", "mockllm/model").replace("--limit 100", "--limit 3")
