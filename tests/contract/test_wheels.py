"""The three packages as wheels: all their files are in them, and their pages on the package index lead somewhere."""

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = "https://github.com/ruleworld/ruleworld/blob/main/"
BESIDE = {"ruleworld-data": {"ruleworld_data.pth", "_ruleworld_hook.py"}}  # what Python reads when it starts


@pytest.mark.slow
@pytest.mark.parametrize("project", ["ruleworld-data", "dynarule", "benchmarks"])
def test_a_wheel_is_whole_and_its_page_stands_alone(project, tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path]
    subprocess.run([*pip, ROOT / project], check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        page = email.message_from_bytes(wheel.read(metadata)).get_payload()
    source = ROOT / project / "src"
    files = subprocess.run(["git", "ls-files", "."], cwd=source, capture_output=True, text=True, check=True)
    assert {*files.stdout.split(), *BESIDE.get(project, ())} <= names
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links and all(link.startswith("https://") for link in links), links
    inside = [link.removeprefix(HERE).split("#")[0] for link in links if link.startswith(HERE)]
    assert all((ROOT / path).exists() for path in inside), inside
