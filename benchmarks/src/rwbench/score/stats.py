"""Intervals and paired tests over clusters of questions.

Questions of one world share rules, so they are not independent: whoever finds a popular rule scores on all its
questions. A question's cluster is its world and, of its gold rules, the one that most questions of the run share. The
world alone would not do: a split asks about one world, and one cluster has no spread. Nor would the components of
"shares any gold rule": the few hundred action rules tie nearly all parallel and multi-hop questions into one.
Questions on one chain of rules are in one cluster: chains are finer (5,156 chains, 2,000 clusters in the test split of
data 1.1).

The bootstrap draws clusters with replacement; the paired test flips the signs of all differences of a cluster together.
Sub-tasks weigh the same, whatever their size.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from ruleworld_data.world import Stream

from .results import Estimate, Metric
from .samples import Sample

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

DRAWS = 10_000
LEVEL = 0.95
EXACT_CLUSTERS = 13
"""Up to so many clusters that differ, all sign patterns are tried (2^13 = 8,192) instead of drawn."""


class Difference(NamedTuple):
    """A paired difference: macro average of second minus first, in [-1, 1], with its 95 % interval.

    ``p_value`` is two-sided, of the sign-flip test; ``n`` questions lie in ``clusters``; on ``better`` and ``worse`` of
    them the second scores higher, lower.
    """

    value: float
    ci_low: float
    ci_high: float
    p_value: float
    n: int
    clusters: int
    better: int
    worse: int


def sample_clusters(samples: Sequence[Sample]) -> list[tuple[str, int]]:
    """Return one cluster per sample: its world and its most shared gold rule (lowest id among equals)."""
    keyed = [(s["world_id"], {rule for step in s["gold_rules"] for rule in step}) for s in samples]
    shared = Counter((world, rule) for world, rules in keyed for rule in rules)
    return [
        (world, min(rules, key=lambda rule: (-shared[world, rule], rule)) if rules else -1)
        for world, rules in keyed
    ]


def grouped_estimates(
    values: Floats,
    groups: Sequence[str],
    clusters: Sequence[Hashable],
    sets: Mapping[str, Collection[str]] | None = None,
    draws: int = DRAWS,
) -> Metric:
    """Return means with 95 % intervals; groups weigh the same, whatever their size.

    ``values`` (N,) has a score in [0, 1] per question, ``groups`` and ``clusters`` its sub-task and cluster. ``sets``
    are sets of groups; one of whose groups no question is asked is left out. The ``draws`` of the bootstrap are always
    the same ones for the same clusters.
    """
    group_of, group_names = codes(groups)
    cluster_of, _ = codes(clusters)
    means = group_means(values, group_of, cluster_of, draws)
    point = np.bincount(group_of, weights=values) / np.bincount(group_of)

    def estimate(columns: list[int]) -> Estimate:
        rows = np.isin(group_of, columns)
        trials = len(np.unique(cluster_of[rows]))
        # Of all columns no copy, whose memory order would change the last bit of a sum.
        chosen = means if len(columns) == means.shape[1] else means[:, columns]
        return _estimate(values[rows], float(point[columns].mean()), row_means(chosen), trials)

    return {
        "macro": estimate(list(range(len(group_names)))),
        "by_subtask": {name: estimate([column]) for column, name in enumerate(group_names)},
        "by_group": {
            name: estimate([column for column, group in enumerate(group_names) if group in members])
            for name, members in (sets or {}).items()
            if set(members) <= set(group_names)
        },
    }


def paired_difference(
    first: Floats,
    second: Floats,
    groups: Sequence[Hashable],
    clusters: Sequence[Hashable],
) -> Difference:
    """Compare two methods on the same questions, whose scores (N,) stand in the same order."""
    difference = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    group_of, group_names = codes(groups)
    cluster_of, cluster_names = codes(clusters)
    # The effect is linear in the differences, so a cluster's part of it is one number.
    weight = 1.0 / (len(group_names) * np.bincount(group_of).astype(np.float64)[group_of])
    parts = np.bincount(cluster_of, weights=difference * weight).astype(np.float64)
    low = high = float(difference[0])
    if difference.min() != difference.max():
        low, high = interval(row_means(group_means(difference, group_of, cluster_of, DRAWS)))
    return Difference(
        value=float(parts.sum()),
        ci_low=low,
        ci_high=high,
        p_value=_sign_flip(parts),
        n=len(difference),
        clusters=len(cluster_names),
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down correction: p values that keep the chance of any false finding at the level."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, scaled))
    return [float(value) for value in adjusted]


def fold_interval(fold_values: Sequence[float]) -> tuple[float, float]:
    """Return (standard deviation, half width of the 95 % t interval) over folds, as the paper reports seeds."""
    from scipy.stats import t

    n, deviation = len(fold_values), float(np.std(fold_values, ddof=1))
    return deviation, float(t.ppf(0.5 + LEVEL / 2, n - 1)) * deviation / math.sqrt(n)


@lru_cache(maxsize=1_000)
def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion."""
    from scipy.stats import binomtest

    limits = binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return float(limits.low), float(limits.high)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of bootstrap draws."""
    low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, 1 - (1 - LEVEL) / 2])
    return float(low), float(high)


def group_means(values: Floats, group_of: Codes, cluster_of: Codes, draws: int) -> Floats:
    """Return the mean of every group in every bootstrap draw of clusters, shape (draws, groups).

    A draw may miss a small group: its mean is then NaN, and `row_means` leaves it out of that draw.
    """
    shape = (int(cluster_of.max()) + 1, int(group_of.max()) + 1)
    cell = cluster_of * shape[1] + group_of
    sums_CG, counts_CG = (
        np.bincount(cell, weights=weights, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
        for weights in (values, np.ones(len(values)))
    )
    with np.errstate(invalid="ignore"):
        return _sums_of_draws(sums_CG, draws) / _counts_of_draws(counts_CG.tobytes(), shape[1], draws)


def row_means(means: Floats) -> Floats:
    """Return the mean of the known numbers of each row; NaN for a row without any."""
    known = ~np.isnan(means)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, means, 0.0).sum(1) / known.sum(1))


def codes(keys: Sequence[Key]) -> tuple[Codes, list[Key]]:
    """Return a number per key, and the keys in order of first appearance."""
    order: dict[Key, int] = {}
    numbers = np.array([order.setdefault(key, len(order)) for key in keys], dtype=np.int64)
    return numbers, list(order)


def _sums_of_draws(sums_CG: Floats, draws: int) -> Floats:
    weights = _drawn(len(sums_CG), draws)
    # A hundred draws at a time stay in the processor's cache as they are made floats: half the time of all at once.
    blocks = [weights[start : start + 100].astype(np.float64) @ sums_CG for start in range(0, draws, 100)]
    return np.concatenate(blocks)


@lru_cache(maxsize=16)
def _counts_of_draws(counts: bytes, num_groups: int, draws: int) -> Floats:
    """Return how many questions of each group a draw has, (draws, groups): the same for all metrics of all runs."""
    return _sums_of_draws(np.frombuffer(counts).reshape(-1, num_groups), draws)


@lru_cache(maxsize=64)
def _drawn(num_clusters: int, draws: int) -> NDArray[np.uint16]:
    """Return how often each cluster is drawn, shape (draws, clusters): each row sums to the number of clusters.

    One run has forty numbers of clusters, and a board a thousand such runs: they are drawn once.
    """
    picks = Stream("rwbench", "bootstrap", num_clusters).integers(num_clusters, draws * num_clusters)
    rows = np.repeat(np.arange(draws), num_clusters)
    flat = np.bincount(rows * num_clusters + picks, minlength=draws * num_clusters)
    return flat.reshape(draws, num_clusters).astype(np.uint16)


def _estimate(values: Floats, point: float, draws: Floats, num_clusters: int) -> Estimate:
    method: Literal["bootstrap", "wilson", "none"] = "none"
    low = high = point
    if values.min() != values.max():
        (low, high), method = interval(draws), "bootstrap"
    elif values[0] in (0.0, 1.0):
        # Every draw gives the same mean: the bootstrap would claim certainty. Clusters count as trials.
        low, high = wilson(int(values[0]) * num_clusters, num_clusters)
        low, high, method = min(low, point), max(high, point), "wilson"
    return {
        "value": round(point, 6),
        "ci_low": round(low, 6),
        "ci_high": round(high, 6),
        "n": len(values),
        "method": method,
    }


def _sign_flip(parts: Floats) -> float:
    """Return the share of sign patterns with an effect at least as large as the one seen."""
    moving = parts[parts != 0]
    if not len(moving):
        return 1.0
    # Sums in another order differ in the last bits; a tie must count as one.
    seen = abs(moving.sum()) - 1e-12
    if len(moving) <= EXACT_CLUSTERS:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((2 * patterns - 1) @ moving) >= seen).mean())
    signs = Stream("rwbench", "sign-flip", len(moving)).integers(2, DRAWS * len(moving))
    flipped = np.abs((2.0 * signs.reshape(DRAWS, len(moving)) - 1.0) @ moving)
    # The pattern that was seen is one of them, so that no p value is zero.
    return float(((flipped >= seen).sum() + 1) / (DRAWS + 1))
