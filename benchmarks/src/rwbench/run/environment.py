"""What a run ran on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic_core import from_json
from ruleworld_data.io import write_whole

from ..score.results import Environment, GitState

FILE_NAME = "environments.json"

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


def environment() -> Environment:
    """Return Python, platform, package versions (null: not installed), the state of the code, and what computes.

    Greedy decoding breaks near ties as the kernels round, so answers of a language model can differ between CPUs, and
    between a CPU and an accelerator; the CPU's kernels are null where nothing has loaded torch, the accelerator where
    there is none.
    """
    torch = sys.modules.get("torch")
    kernels = None if torch is None else str(torch.backends.cpu.get_cpu_capability())
    there = torch is not None and torch.cuda.is_available()
    gpu = torch.cuda.get_device_name() if torch is not None and there else None
    return {**_installed(), "cpu_kernels": kernels, "gpu": gpu}


def note_environment(folder: Path) -> None:
    """Write down beside a run's samples that some are made here, after where others were made before."""
    found, here = _noted(folder), environment()
    if found and not _elsewhere(found[-1], here):
        here = {**found.pop(), **{name: value for name, value in here.items() if value is not None}}  # type: ignore[typeddict-item]
    write_whole(folder / FILE_NAME, json.dumps([*found, here], indent=1) + "\n")


def noted_environment(folder: Path) -> Environment:
    """Return where a run was made; of one that went on elsewhere ``earlier`` says where it was before."""
    *earlier, last = _noted(folder) or [environment()]
    return {**last, "earlier": [dict(each) for each in earlier]} if earlier else last


def _elsewhere(one: Environment, other: Environment) -> bool:
    """Return whether two differ; of kernels and accelerator, where both were known, which takes torch."""
    names = set(one)
    if None in (one.get("cpu_kernels"), other.get("cpu_kernels")):
        names -= {"cpu_kernels", "gpu"}
    return any(one.get(name) != other.get(name) for name in names)


def _noted(folder: Path) -> list[Environment]:
    path = folder / FILE_NAME
    if not path.is_file():
        return []
    try:
        found = from_json(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{path} does not say where the run was made; delete it to go on without")
    return found


@lru_cache(maxsize=1)
def _installed() -> Environment:
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

    def output(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).resolve().parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        dirty = output("status", "--porcelain", "--untracked-files=no")
        return {"commit": output("rev-parse", "HEAD"), "dirty": bool(dirty)}
    except (OSError, subprocess.SubprocessError):
        return None
