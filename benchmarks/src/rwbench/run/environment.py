"""What a run ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from .samples import OPEN

PACKAGES = (
    "rwbench",
    "ruleworld-data",
    "numpy",
    "scipy",
    "pyarrow",
    "bm25s",
    "PyStemmer",
    "sentence-transformers",
    "torch",
    "transformers",
)


@with_config(OPEN)
class GitState(TypedDict):
    """The checkout that ran."""

    commit: str
    dirty: bool


@with_config(OPEN)
class Environment(TypedDict):
    """What a run ran on; a package that is not installed has version null."""

    python: str
    platform: str
    cpu_count: NotRequired[int | None]
    packages: dict[str, str | None]
    git: GitState | None


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return Python, platform, package versions (null: not installed) and the state of the code."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git": _git(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git() -> GitState | None:
    """Return commit and whether tracked files were changed; None outside a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        commit = _git_output(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "dirty": bool(_git_output(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _git_output(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
