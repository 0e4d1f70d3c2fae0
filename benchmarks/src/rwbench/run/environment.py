"""What a run ran on."""

import os
import platform
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..score.results import Environment

PACKAGES = "rwbench ruleworld-data numpy scipy pyarrow bm25s PyStemmer torch transformers".split()


def environment() -> Environment:
    """Return Python, platform, package versions (null: not installed), the state of the code, and what computes.

    Greedy decoding breaks near ties as the kernels round, so answers of a language model can differ between CPUs, and
    between a CPU and an accelerator. Both are null where nothing has loaded torch, and the accelerator where none is.
    """
    torch = sys.modules.get("torch")
    return {
        **_installed(),
        "cpu_kernels": None if torch is None else str(torch.backends.cpu.get_cpu_capability()),
        "gpu": torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None,
    }


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


def _git() -> dict[str, Any] | None:
    """Return commit and whether tracked files were changed; None outside a checkout."""

    def output(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).resolve().parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        dirty = output("status", "--porcelain", "--untracked-files=no")
        return {"commit": output("rev-parse", "HEAD"), "dirty": bool(dirty)}
    except (OSError, subprocess.SubprocessError):
        return None
