"""The notebooks run from top to bottom in a fresh interpreter, and are kept without outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruleworld_data.generate import question_table

FOLDER = Path(__file__).parents[3] / "benchmarks" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(name: str, folder: Path) -> str:
    """Run a notebook's code cells one after another; return what they print."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environment = os.environ | {"MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook):
    assert len(NOTEBOOKS) == 2
    book = json.loads(notebook.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in book["cells"]]
    assert len(ids) == len(set(ids)) and book["cells"][0]["cell_type"] == "markdown"
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_look_at_the_data(tmp_path):
    said = run("look_at_the_data", tmp_path)
    row = question_table("multi_hop_3", "test", "tiny").slice(0, 1).to_pylist()[0]
    assert row["question"] in said
    assert len(re.findall(rf"rules: {re.escape(str(row['answers']))}\n", said)) == 4
    assert f"gold answer: {row['answers']}" in said and "exact_match=1.0" in said


@pytest.mark.slow
def test_watch_search(tmp_path):
    said = run("watch_search", tmp_path)
    count, before, after = map(int, re.search(r"steps: (\d+); .*: (\d+), after: (\d+)", said).groups())
    assert count == 30
    # A rule by chance would be on top once in 36 looks.
    assert before <= 3 and after >= 10
