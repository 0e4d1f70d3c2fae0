"""Clocks, peak memory and read bandwidth; medians of what was timed."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .settings import Settings

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def timed(work: Callable[[], object], device: str) -> tuple[float, float]:
    """Run something once; return wall and CPU seconds, with what the GPU still had to do."""
    _wait(device)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    _wait(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def reset_peak(device: str) -> None:
    """Forget the peak of memory so far (on Linux; elsewhere the peak is the process's)."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")


def peak_mb(device: str) -> float:
    """Return the peak since `reset_peak` in MB: resident pages, mapped files among them; on a GPU, allocated."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def read_bandwidth(settings: Settings, megabytes: int = 1_024, repeats: int = 5) -> float:
    """Measure how fast memory is read: the best of some sums over more than a cache holds, in GB/s."""
    import torch

    torch.set_num_threads(settings.threads)
    rows = torch.ones(megabytes * 1_000_000 // 4_096, 1_024, device=settings.device)
    vector = torch.ones(1_024, device=settings.device)
    out = torch.empty(len(rows), device=settings.device)
    seconds = [timed(lambda: torch.mv(rows, vector, out=out), settings.device) for _ in range(repeats + 1)]
    return rows.nbytes / 1e9 / min(pair[settings.by_cpu_time] for pair in seconds[1:])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and number of values."""
    low, middle, high = np.percentile(np.asarray(values, dtype=np.float64), [25, 50, 75])
    return {
        "median": round(float(middle), 4),
        "q25": round(float(low), 4),
        "q75": round(float(high), 4),
        "n": len(values),
    }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each pair, of neighbours in time."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]
