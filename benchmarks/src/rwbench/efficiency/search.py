"""Time of one exact search by number of rules, alone: what a selection costs, and how it grows.

A method that selects once per prompt pays this once for a first token; the paper's, once per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .settings import SearchSettings
from .timing import peak_mb, reset_peak, spread, timed
from .workload import random_rows

if TYPE_CHECKING:
    from torch import Tensor


class MappedKeys:
    """What exact search reads of a bank: rows of a file, (M, P)."""

    def __init__(self, keys_MP: Tensor) -> None:
        from dynarule.bank import SharedRows

        self.keys = SharedRows(keys_MP)

    def __len__(self) -> int:
        return self.keys.count


def search_times(settings: SearchSettings, rules: Sequence[int], cache: Path) -> dict[str, Any]:
    """Search the first M rows of one file, one query at a time.

    Returns
    -------
    dict
        ``cells``: per number of rules the ms of a search, the bytes read, and the peak of memory, mapped rows among it;
        ``slope``: of log ms over log rules, fitted where a search takes over a millisecond.
    """
    import torch
    from dynarule.bank import ExactIndex

    torch.set_num_threads(settings.threads)
    rows_MP = random_rows(cache, max(rules), settings.encoder_dim, settings.embeddings, settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    cells: list[dict[str, Any]] = []
    for count in sorted(rules):
        keys: Any = MappedKeys(rows_MP[:count])
        query_1P = torch.randn(1, settings.encoder_dim, generator=generator)
        asked = query_1P, torch.zeros(1), torch.ones(count), settings.top_k
        reset_peak("cpu")
        index = ExactIndex()
        timed(lambda: index.search(keys, *asked), "cpu")  # noqa: B023 - called at once; maps the file
        pairs = [timed(lambda: index.search(keys, *asked), "cpu") for _ in range(settings.repeats)]  # noqa: B023
        cells.append(
            {
                "rules": count,
                "ms": spread([1e3 * pair[settings.by_cpu_time] for pair in pairs]),
                "megabytes": round(rows_MP[:count].nbytes / 1e6, 3),
                "peak_mb": round(peak_mb("cpu"), 1),
            }
        )
    return {"cells": cells, "slope": fitted_slope([(cell["rules"], cell["ms"]["median"]) for cell in cells])}


def fitted_slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Return the slope of log time over log rules where a search takes over a millisecond; 1: time is linear."""
    kept = [(count, ms) for count, ms in points if ms > 1]
    if len(kept) < 2:
        return None
    x, y = np.log(np.array(kept, dtype=np.float64)).T
    return round(float(np.polyfit(x, y, 1)[0]), 3)
