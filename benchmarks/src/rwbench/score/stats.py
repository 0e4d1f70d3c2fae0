"""Intervals: bootstrap clustered by gold rule, Wilson where nothing varies, the paper's t over folds.

Questions of one world share rules, so they are not independent: whoever finds a popular rule scores on all
its questions. The bootstrap therefore draws clusters with replacement, not questions. A question's cluster is
its world and, of its gold rules, the one that most questions of the run share (`cluster_keys`). The world alone
would not do: a split asks about one world, and one cluster has no spread. Nor would the components of "shares any
gold rule": the few hundred action rules tie nearly all parallel and multi-hop questions into one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ruleworld_data.world import Stream

Floats = NDArray[np.float64]

DRAWS = 10_000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean with its interval; ``method`` is ``"bootstrap"``, ``"wilson"`` or ``"none"``."""

    value: float
    ci_low: float
    ci_high: float
    n: int
    method: str


def cluster_keys(worlds: Sequence[str], gold: Sequence[Sequence[int]]) -> list[tuple[str, int]]:
    """Return one cluster per question: its world and its most shared gold rule (lowest id among equals)."""
    shared = Counter((world, rule) for world, rules in zip(worlds, gold, strict=True) for rule in set(rules))
    return [
        (world, min(rules, key=lambda rule: (-shared[world, rule], rule)) if rules else -1)
        for world, rules in zip(worlds, gold, strict=True)
    ]


def macro_estimates(
    values: Floats, groups: Sequence[Hashable], clusters: Sequence[Hashable], draws: int = DRAWS
) -> tuple[Estimate, dict[Hashable, Estimate]]:
    """Return the mean over groups with equal weight, and every group's mean, each with a 95 % interval.

    Parameters
    ----------
    values : ndarray of float64, shape (N,)
        One score in [0, 1] per question.
    groups : sequence, length N
        Sub-task of each question.
    clusters : sequence, length N
        Cluster of each question (`cluster_keys`).
    draws : int
        Bootstrap draws; always the same ones for the same clusters.

    Returns
    -------
    macro : Estimate
    by_group : dict
        In order of first appearance.
    """
    macro, by_group, _ = grouped_estimates(values, groups, clusters, {}, draws)
    return macro, by_group


def grouped_estimates(
    values: Floats,
    groups: Sequence[Hashable],
    clusters: Sequence[Hashable],
    sets: Mapping[str, Collection[Hashable]],
    draws: int = DRAWS,
) -> tuple[Estimate, dict[Hashable, Estimate], dict[str, Estimate]]:
    """Return `macro_estimates` and the mean over each named set of groups, its groups weighing the same.

    Parameters
    ----------
    sets : mapping of str to collection
        Sets of groups; one of whose groups no question is asked is left out.
    """
    if not len(values):
        raise ValueError("no scored question: nothing to average")
    group_of, group_names = codes(groups)
    cluster_of, cluster_names = codes(clusters)
    shape = (len(cluster_names), len(group_names))
    flat = cluster_of * shape[1] + group_of
    sums = np.bincount(flat, weights=values, minlength=shape[0] * shape[1]).reshape(shape)
    counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)

    weights = resamples(len(cluster_names), draws)
    with np.errstate(invalid="ignore"):
        # A draw may miss a small group: its mean is then undefined and left out of that draw.
        means = (weights @ sums) / (weights @ counts)
    point = sums.sum(0) / counts.sum(0)
    by_group = {
        name: _estimate(
            values[group_of == g], float(point[g]), means[:, g], len(np.unique(cluster_of[group_of == g]))
        )
        for g, name in enumerate(group_names)
    }
    by_set = {}
    for name, members in sets.items():
        columns = [g for g, group in enumerate(group_names) if group in members]
        if len(columns) == len(members):
            rows = np.isin(group_of, columns)
            trials = len(np.unique(cluster_of[rows]))
            mean = float(point[columns].mean())
            by_set[name] = _estimate(values[rows], mean, _row_means(means[:, columns]), trials)
    macro = _estimate(values, float(point.mean()), _row_means(means), len(cluster_names))
    return macro, by_group, by_set


def wilson(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion."""
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + level / 2))
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def fold_interval(fold_values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return (standard deviation, half width of the t interval) over folds, as the paper reports seeds."""
    from scipy.stats import t

    n = len(fold_values)
    if n < 2:
        raise ValueError(f"a t interval needs at least two folds, got {n}")
    deviation = float(np.std(fold_values, ddof=1))
    return deviation, float(t.ppf(0.5 + level / 2, n - 1)) * deviation / math.sqrt(n)


def _estimate(values: Floats, point: float, draws: Floats, num_clusters: int) -> Estimate:
    if values.min() == values.max():
        # Every draw gives the same mean: the bootstrap would claim certainty. Clusters count as trials.
        if values[0] not in (0.0, 1.0):
            return Estimate(point, point, point, len(values), "none")
        low, high = wilson(float(values[0]) * num_clusters, num_clusters)
        return Estimate(point, min(low, point), max(high, point), len(values), "wilson")
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    return Estimate(point, float(low), float(high), len(values), "bootstrap")


def _row_means(means: Floats) -> Floats:
    known = ~np.isnan(means)
    with np.errstate(invalid="ignore"):
        return np.where(known, means, 0.0).sum(1) / known.sum(1)


def codes(keys: Sequence[Hashable]) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Return a number per key, and the keys in order of first appearance."""
    order: dict[Hashable, int] = {}
    codes = np.array([order.setdefault(key, len(order)) for key in keys], dtype=np.int64)
    return codes, list(order)


@lru_cache(maxsize=8)
def resamples(num_clusters: int, draws: int) -> Floats:
    """Return how often each cluster is drawn, shape (draws, clusters): each row sums to the number of clusters."""
    picks = Stream("rwbench", "bootstrap", num_clusters).integers(num_clusters, draws * num_clusters)
    rows = np.repeat(np.arange(draws), num_clusters)
    flat = np.bincount(rows * num_clusters + picks, minlength=draws * num_clusters)
    return flat.reshape(draws, num_clusters).astype(np.float64)
