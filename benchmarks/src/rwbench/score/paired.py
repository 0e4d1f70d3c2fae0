"""Is one method better than another? Paired tests on the questions that both answered.

The effect is the macro average of the differences: over questions within a sub-task, then over sub-tasks with
equal weight. Both the interval and the test treat clusters of questions as the units (`stats.cluster_keys`):
the interval draws clusters with replacement, the test flips the signs of all differences of a cluster together.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from ruleworld_data.world import Stream

from .stats import DRAWS, Floats, codes, group_means, interval, row_means

EXACT_CLUSTERS = 13
"""Up to so many clusters that differ, all sign patterns are tried (2^13 = 8,192) instead of drawn."""


class Difference(NamedTuple):
    """A paired difference.

    Attributes
    ----------
    value, ci_low, ci_high : float
        Macro average of second minus first, in [-1, 1], with its 95 % interval.
    p_value : float
        Two-sided, of the cluster sign-flip test.
    n : int
        Shared questions.
    clusters : int
        Clusters of them.
    better, worse : int
        Questions on which the second scores higher, lower.
    """

    value: float
    ci_low: float
    ci_high: float
    p_value: float
    n: int
    clusters: int
    better: int
    worse: int


def paired_difference(
    first: Floats,
    second: Floats,
    groups: Sequence[Hashable],
    clusters: Sequence[Hashable],
    draws: int = DRAWS,
) -> Difference:
    """Compare two methods on the same questions.

    Parameters
    ----------
    first, second : ndarray of float64, shape (N,)
        Scores in the same order of questions.
    groups, clusters : sequence, length N
        Sub-task and cluster of each question.
    draws : int
        Bootstrap draws, and sign patterns where there are too many to try all.

    Raises
    ------
    ValueError
        If there is no question or the two have different lengths.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(
            f"a paired comparison needs the same questions, at least one; got {len(first)} and {len(second)} scores"
        )
    difference = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    group_of, group_names = codes(groups)
    cluster_of, cluster_names = codes(clusters)
    sizes = np.bincount(group_of).astype(np.float64)
    # The effect is linear in the differences, so a cluster's part of it is one number.
    weight = 1.0 / (len(group_names) * sizes[group_of])
    parts = np.bincount(cluster_of, weights=difference * weight).astype(np.float64)
    low = high = float(difference[0])
    if difference.min() != difference.max():
        low, high = interval(row_means(group_means(difference, group_of, cluster_of, draws)))
    return Difference(
        value=float(parts.sum()),
        ci_low=low,
        ci_high=high,
        p_value=_sign_flip(parts, draws),
        n=len(difference),
        clusters=len(cluster_names),
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down correction: p values that keep the chance of any false finding at the level."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _sign_flip(parts: Floats, draws: int) -> float:
    """Return the share of sign patterns with an effect at least as large as the one seen."""
    moving = parts[parts != 0]
    if not len(moving):
        return 1.0
    # Sums in another order differ in the last bits; a tie must count as one.
    seen = abs(moving.sum()) - 1e-12
    if len(moving) <= EXACT_CLUSTERS:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((2 * patterns - 1) @ moving) >= seen).mean())
    signs = Stream("rwbench", "sign-flip", len(moving)).integers(2, draws * len(moving))
    flipped = np.abs((2.0 * signs.reshape(draws, len(moving)) - 1.0) @ moving)
    # The pattern that was seen is one of them, so that no p value is zero.
    return float(((flipped >= seen).sum() + 1) / (draws + 1))
