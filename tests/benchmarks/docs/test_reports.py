"""The commands of benchmarks/docs/reports.md, on quick runs in place of the recipe's."""

import re
import shlex
import shutil
from pathlib import Path

from rwbench.score.errors import ERROR_CLASSES

from ..command import rwbench

PAGE = (Path(__file__).parents[3] / "benchmarks/docs/reports.md").read_text(encoding="utf-8")


def test_the_commands_run(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, (*ids, _solver) = shutil.copytree(finished[0], tmp_path / "runs"), finished[1]
    lines = [line.split("  #")[0] for line in re.search(r"```sh\n(.*?)```", PAGE, flags=re.S)[1].splitlines()]
    assert [line.split()[1] for line in lines] == ["report"] * 4 + ["compare"]
    for line in lines:
        words = shlex.split(line)
        for run_id in ids:
            if "RUN" in words:
                words[words.index("RUN")] = f"runs/{run_id}"
        rwbench(*words[1:], code=0)
    assert (out / "report.html").is_file()


def test_the_classes_are_the_code_s():
    named = set(re.findall(r"^\| (.*?) \|", PAGE, flags=re.M))
    assert {name for cell in named for name in re.findall(r"`(\w+)`", cell)} == set(ERROR_CLASSES) - {
        "correct"
    }
