"""benchmarks/leaderboard/README.md, done: a stranger's path from data to the board, and through a sealed round."""

import glob
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rwbench.recipes import RunRecipe, recipes

from ..command import rwbench

README = Path(__file__).parents[3] / "benchmarks/leaderboard/README.md"
TEXT = README.read_text(encoding="utf-8")


def test_the_commands_lead_to_two_rows_with_their_numbers(tmp_path, monkeypatch):
    """The method that ran elsewhere, with its score in the sealed round, and the run."""
    for name, body in re.findall(r"^```(?:python|toml) (\S+)\n(.*?)^```", TEXT, flags=re.M | re.S):
        (tmp_path / name).write_text(body)
    lines = "".join(re.findall(r"^```bash\n(.*?)^```", TEXT, flags=re.M | re.S)).replace("\\\n", "")
    monkeypatch.chdir(tmp_path)
    # Of the recipe only the run that the page hands in, which it names.
    smoke = recipes.get("smoke")
    small = RunRecipe("smoke", lambda options: [s for s in smoke(options) if s.run_id in TEXT])
    monkeypatch.setitem(recipes._entries, "smoke", small)
    monkeypatch.setattr("secrets.randbits", lambda bits: 4_611_686_018_427_387_905)
    for line in lines.splitlines():
        split = shlex.split(line.split("  #")[0])
        words = [name for word in split for name in (sorted(glob.glob(word)) or [word])]
        if words[0] in ("python", "cp"):
            program = {"python": sys.executable}.get(words[0], words[0])
            subprocess.run([program, *words[1:]], check=True, capture_output=True)
            continue
        rwbench(*words[1:], code=0)
    page = (tmp_path / "site/index.html").read_text()
    rows = {row["name"]: row for row in json.loads((tmp_path / "site/board.json").read_text())["rows"]}
    assert set(rows) == {"Shared words", "BM25"}
    mine, run = rows["Shared words"], rows["BM25"]
    assert (mine["rank"], mine["n"], mine["track"]) == (1, 550, "answers")
    assert mine["sealed"]["round"] == "2026-1" and page.count("in sealed round 2026-1:") == 1
    assert (run["rank"], run["n"], run["track"]) == (1, 550, "retrieval")
    results = json.loads((tmp_path / "own" / run["run_id"] / "results.json").read_text())
    assert run["metrics"]["recall@1"] == results["metrics"]["recall@1"]["macro"]
    assert (tmp_path / "runs/report.html").is_file()
    assert "Shared words" in page and "BM25" in page
