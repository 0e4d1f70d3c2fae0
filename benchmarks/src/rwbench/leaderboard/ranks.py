"""Ranks with ties: one rank better only if the paired interval of the difference leaves zero out.

A submission's rank is one more than the number of submissions that are better than it beyond doubt: whose paired 95 %
interval of the difference lies above zero. So rows that the data cannot tell apart share a rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..run.samples import Sample
from ..score.metrics import sample_clusters
from ..score.stats import DRAWS, LEVEL, Floats, codes, resamples


def draws_of(samples: Sequence[Sample], metric: str) -> Floats:
    """Return the macro average of a metric in every bootstrap draw, shape (draws,).

    Two submissions on the same questions get the same draws, so the difference of their arrays is the paired
    bootstrap of `rwbench.score.paired.paired_difference`.

    Parameters
    ----------
    samples : sequence of dict
        In the order of their ids, each with the metric.
    metric : str
    """
    values = np.array([sample["scores"][metric] for sample in samples], dtype=np.float64)
    group_of, groups = codes([sample["subtask"] for sample in samples])
    cluster_of, clusters = codes(sample_clusters(samples))
    flat = cluster_of * len(groups) + group_of
    size, shape = len(clusters) * len(groups), (len(clusters), len(groups))
    sums = np.bincount(flat, weights=values, minlength=size).reshape(shape)
    counts = np.bincount(flat, minlength=size).reshape(shape).astype(np.float64)
    weights = resamples(len(clusters), DRAWS)
    with np.errstate(invalid="ignore"):
        return np.nanmean((weights @ sums) / (weights @ counts), axis=1)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 95 % interval of bootstrap draws."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def ranks(draws: Sequence[Floats]) -> list[int]:
    """Return the rank of each submission of one setting.

    Parameters
    ----------
    draws : sequence of ndarray
        `draws_of` each, over the same questions.
    """
    return [1 + sum(_beaten(own, other) for other in draws) for own in draws]


def _beaten(own: Floats, other: Floats) -> bool:
    difference = other - own
    # Quick answer for most pairs: sorting ten thousand numbers is what takes the time.
    if difference.min() > 0:
        return True
    if difference.max() <= 0 or difference.mean() <= 0:
        return False
    return interval(difference)[0] > 0
