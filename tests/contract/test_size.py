"""The size of the repository: its numbers only fall. Whoever raises one says why in the commit."""

import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = {
    "ruleworld-data": 11_162,
    "dynarule": 13_450,
    "benchmarks": 10_020,
    "tests": 19_880,
}
"""Lines of Python below each folder, comments and blank lines included."""
ALL_SOURCE = 34_632
FOLDER_FILES = 16
"""Modules of a folder, `__init__.py` included."""
TRACKED_MB = 63.2
START_SECONDS = 1.5
"""CPU of `--help`, of which Python itself takes a part."""


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in names.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def count_lines(folder: str) -> int:
    paths = [path for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / folder)]
    return sum(path.read_bytes().count(b"\n") for path in paths)


@pytest.mark.parametrize("folder", LINES)
def test_lines_of_a_folder(folder):
    assert 0 < count_lines(folder) <= LINES[folder]


def test_lines_of_all_source():
    assert sum(count_lines(folder) for folder in LINES if folder != "tests") <= ALL_SOURCE


def test_folders_are_small():
    sizes = Counter(path.parent for path in tracked() if path.suffix == ".py" and "tests" not in path.parts)
    assert {str(folder): n for folder, n in sizes.items() if n > FOLDER_FILES} == {}


def test_a_clone_is_small():
    assert sum(path.stat().st_size for path in tracked()) <= TRACKED_MB * 10**6


@pytest.mark.parametrize("command", ["ruleworld", "dynarule", "rwbench"])
def test_a_command_starts_at_once(command):
    """CPU time, the least of three: what else the machine does is none of it."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [Path(sys.executable).with_name(command), "--help"], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < START_SECONDS
