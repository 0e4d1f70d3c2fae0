"""Medians, spread and ratios of paired times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


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
