"""Intervals: bootstrap clustered by gold rule, Wilson where nothing varies, the paper's t over folds.

Questions of one world share rules, so they are not independent: whoever finds a popular rule scores on all
its questions. The bootstrap therefore draws clusters with replacement, not questions. A question's cluster is
its world and, of its gold rules, the one that most questions of the run share (`sample_clusters`). The world alone
would not do: a split asks about one world, and one cluster has no spread. Nor would the components of "shares any
gold rule": the few hundred action rules tie nearly all parallel and multi-hop questions into one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from ruleworld_data.world import Stream

from ..run.samples import Sample
from .results import Estimate

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

DRAWS = 10_000
LEVEL = 0.95
_TAILS = [(1 - LEVEL) / 2, 1 - (1 - LEVEL) / 2]


class Estimates(NamedTuple):
    """Means of one metric: over all groups with equal weight, of each group, and over named sets of groups."""

    macro: Estimate
    by_group: dict[str, Estimate]
    by_set: dict[str, Estimate]


def sample_clusters(samples: Sequence[Sample]) -> list[tuple[str, int]]:
    """Return one cluster per sample: its world and its most shared gold rule (lowest id among equals)."""
    gold = [{rule for step in sample["gold_rules"] for rule in step} for sample in samples]
    keyed = [(sample["world_id"], rules) for sample, rules in zip(samples, gold, strict=True)]
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
) -> Estimates:
    """Return means with 95 % intervals; groups weigh the same, whatever their size.

    Parameters
    ----------
    values : ndarray of float64, shape (N,)
        One score in [0, 1] per question.
    groups : sequence, length N
        Sub-task of each question; the result has them in order of first appearance.
    clusters : sequence, length N
        Cluster of each question (`sample_clusters`).
    sets : mapping of str to collection, optional
        Sets of groups; one of whose groups no question is asked is left out.
    draws : int
        Bootstrap draws; always the same ones for the same clusters.

    Raises
    ------
    ValueError
        If there is no question.
    """
    if not len(values):
        raise ValueError("no scored question: nothing to average")
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

    return Estimates(
        estimate(list(range(len(group_names)))),
        {name: estimate([column]) for column, name in enumerate(group_names)},
        {
            name: estimate([column for column, group in enumerate(group_names) if group in members])
            for name, members in (sets or {}).items()
            if set(members) <= set(group_names)
        },
    )


def group_means(values: Floats, group_of: Codes, cluster_of: Codes, draws: int) -> Floats:
    """Return the mean of every group in every bootstrap draw of clusters, shape (draws, groups).

    A draw may miss a small group: its mean is then NaN, and `row_means` leaves it out of that draw.
    """
    shape = (int(cluster_of.max()) + 1, int(group_of.max()) + 1)
    cell = cluster_of * shape[1] + group_of
    sums, counts = (
        np.bincount(cell, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)
        for weights in (values, np.ones(len(values)))
    )
    weights = resamples(shape[0], draws)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ sums) / (weights @ counts))


def row_means(means: Floats) -> Floats:
    """Return the mean of the known numbers of each row; NaN for a row without any."""
    known = ~np.isnan(means)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, means, 0.0).sum(1) / known.sum(1))


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of bootstrap draws."""
    low, high = np.nanquantile(draws, _TAILS)
    return float(low), float(high)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion."""
    from scipy.stats import binomtest

    found = binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def fold_interval(fold_values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return (standard deviation, half width of the t interval) over folds, as the paper reports seeds."""
    from scipy.stats import t

    n = len(fold_values)
    if n < 2:
        raise ValueError(f"a t interval needs at least two folds, got {n}")
    deviation = float(np.std(fold_values, ddof=1))
    return deviation, float(t.ppf(0.5 + level / 2, n - 1)) * deviation / math.sqrt(n)


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


def codes(keys: Sequence[Key]) -> tuple[Codes, list[Key]]:
    """Return a number per key, and the keys in order of first appearance."""
    order: dict[Key, int] = {}
    numbers = np.array([order.setdefault(key, len(order)) for key in keys], dtype=np.int64)
    return numbers, list(order)


@lru_cache(maxsize=8)
def resamples(num_clusters: int, draws: int) -> Floats:
    """Return how often each cluster is drawn, shape (draws, clusters): each row sums to the number of clusters."""
    picks = Stream("rwbench", "bootstrap", num_clusters).integers(num_clusters, draws * num_clusters)
    rows = np.repeat(np.arange(draws), num_clusters)
    flat = np.bincount(rows * num_clusters + picks, minlength=draws * num_clusters)
    return flat.reshape(draws, num_clusters).astype(np.float64)
