"""Ranks with ties: one rank better only if the paired interval of the difference leaves zero out.

A submission's rank is one more than the number of submissions that are better than it beyond doubt: whose paired 95 %
interval of the difference lies above zero. So rows that the data cannot tell apart share a rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..run.samples import Sample
from ..score.stats import DRAWS, Floats, codes, group_means, interval, row_means, sample_clusters


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
    group_of, _ = codes([sample["subtask"] for sample in samples])
    cluster_of, _ = codes(sample_clusters(samples))
    return row_means(group_means(values, group_of, cluster_of, DRAWS))


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
