"""Each tool that evaluates or trains runs our task from a wheel, in an environment of its own (minutes each).

The tests of a tool run its own Python interface. Of the commands in docs/plugins.md only lm-eval's runs without a
network: inspect's fetches a vocabulary to count tokens before the first question.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruleworld_data.plugins import PLUGINS

ROOT = Path(__file__).parents[3]
# inspect asks for an older fsspec than constraints.txt holds.
TOOLS = {
    "inspect": ["torch", "accelerate", "transformers"],
    "lm-eval": ["torch", "accelerate"],
    "mteb": ["torch"],
}
# Frameworks that train, and the extra of each.
FRAMEWORKS = {name: name for name in ("reasoning-gym", "skyrl", "openenv", "verifiers", "trl")} | {
    "verl": "environments"
}
PAGE = ROOT / "ruleworld-data/docs/environments.md"


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_the_task_runs_from_the_wheel(tool, tmp_path):
    check(tool, tool, TOOLS[tool], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_adapter_and_its_page_run_from_the_wheel(framework, tmp_path):
    extra = FRAMEWORKS[framework]
    python = check(framework, extra, ["torch"] if framework == "trl" else [], tmp_path)
    module = PLUGINS[framework].removesuffix(".py")
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    (block,) = [block for block in blocks if f"plugins.{module}" in block]
    subprocess.run([python, "-c", block], cwd=tmp_path, env=alone(), check=True)


def alone() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def check(tool: str, extra: str, first: list[str], tmp_path: Path) -> Path:
    """Run the tool's tests in an environment with our wheel; return its Python."""
    python = tmp_path / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    if first:  # as in the Makefile: the CPU build
        subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *first], check=True)
    subprocess.run([*pip, f"{ROOT / 'ruleworld-data'}[{extra}]", "pytest"], check=True)
    if tool == "verl":  # its own needs are a GPU's; its loader of reward functions has none
        subprocess.run([*pip, "--no-deps", "verl==0.9.1"], check=True)
    test = ROOT / "tests/data/plugins" / f"test_{tool.replace('-', '_')}.py"
    words = [python, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", ROOT, test]
    done = subprocess.run(words, cwd=tmp_path, env=alone(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout, done.stdout
    return python
