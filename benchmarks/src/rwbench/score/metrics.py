"""From samples to the metrics of results.json: means by sub-task with intervals, and the paper's groups and folds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from ..run.samples import Sample
from .stats import Estimate, cluster_keys, fold_interval, grouped_estimates

GROUPS: dict[str, tuple[str, ...]] = {
    "parallel_2_4": tuple(f"multi_rule_{n}" for n in range(2, 5)),
    "parallel_5_8": tuple(f"multi_rule_{n}" for n in range(5, 9)),
    "parallel": tuple(f"multi_rule_{n}" for n in range(2, 9)),
    "hops": tuple(f"multi_hop_{n}" for n in range(2, 5)),
}
"""Sub-tasks that the paper's tables report as one column: the mean of their means."""

DISPLAYED = ("single_rule", "parallel_2_4", "parallel_5_8", "multi_hop_2", "multi_hop_3", "multi_hop_4")
"""Columns of the paper's main table, in order; its seed spread is over their mean."""


def metric_estimates(scored: Sequence[Sample], split: str) -> dict[str, Any]:
    """Return, by metric, the macro average, every sub-task's and group's mean with intervals, and the folds' spread.

    Parameters
    ----------
    scored : sequence of dict
        Samples without errors.
    split : str
        Split mini also gets the spread over its folds.
    """
    clusters = sample_clusters(scored)
    names = list(dict.fromkeys(name for sample in scored for name in sample["scores"]))
    out: dict[str, Any] = {}
    for name in names:
        rows = [row for row, sample in enumerate(scored) if name in sample["scores"]]
        values = np.array([scored[row]["scores"][name] for row in rows], dtype=np.float64)
        subtasks = [scored[row]["subtask"] for row in rows]
        macro, by_subtask, by_group = grouped_estimates(
            values, subtasks, [clusters[row] for row in rows], GROUPS
        )
        out[name] = {
            "macro": plain(macro),
            "by_subtask": {str(subtask): plain(estimate) for subtask, estimate in by_subtask.items()},
            "by_group": {group: plain(estimate) for group, estimate in by_group.items()},
        }
        if split == "mini":
            out[name]["folds"] = _folds(values, subtasks, [scored[row]["fold"] for row in rows])
    return out


def sample_clusters(samples: Sequence[Sample]) -> list[tuple[str, int]]:
    """Return the cluster of every sample (`stats.cluster_keys`)."""
    return cluster_keys(
        [sample["world_id"] for sample in samples],
        [[rule for step in sample["gold_rules"] for rule in step] for sample in samples],
    )


def plain(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as results.json writes it."""
    values = {name: round(getattr(estimate, name), 6) for name in ("value", "ci_low", "ci_high")}
    return {**values, "n": estimate.n, "method": estimate.method}


def _folds(values: np.ndarray, subtasks: Sequence[str], folds: Sequence[int]) -> dict[str, Any] | None:
    """Return the paper's second column: spread of the macro average over its five seeds."""
    by_fold: dict[int, dict[str, list[float]]] = {}
    for value, subtask, fold in zip(values, subtasks, folds, strict=True):
        by_fold.setdefault(fold, {}).setdefault(subtask, []).append(float(value))
    if len(by_fold) < 2:
        return None
    means = [{name: fmean(part) for name, part in by_fold[fold].items()} for fold in sorted(by_fold)]
    macro = [fmean(found.values()) for found in means]
    deviation, half_width = fold_interval(macro)
    displayed = [_displayed(found) for found in means]
    return {
        "values": [round(value, 6) for value in macro],
        "std": round(deviation, 6),
        "t_half": round(half_width, 6),
        # The paper's own overall score of a seed: its tables' columns weigh the same, not the sub-tasks.
        "displayed": None
        if None in displayed
        else [round(value, 6) for value in displayed if value is not None],
    }


def _displayed(means: dict[str, float]) -> float | None:
    columns = [GROUPS.get(name, (name,)) for name in DISPLAYED]
    if any(subtask not in means for column in columns for subtask in column):
        return None
    return fmean(fmean(means[subtask] for subtask in column) for column in columns)
