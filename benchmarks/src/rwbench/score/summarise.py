"""From a run's samples to its results: means by sub-task, group and fold with intervals, recall details, costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ..methods import Method
from ..run.environment import environment
from ..run.pools import pools_sha256
from ..run.samples import Sample, samples_sha256
from ..run.workspace import Workspace
from ..spec import RunSpec
from .details import measure_means, outcome_counts, recall_details, stage_seconds, usage_totals
from .results import Folds, MethodName, Metric, Results
from .stats import fold_interval, grouped_estimates, sample_clusters

GROUPS: dict[str, tuple[str, ...]] = {
    "parallel_2_4": tuple(f"multi_rule_{n}" for n in range(2, 5)),
    "parallel_5_8": tuple(f"multi_rule_{n}" for n in range(5, 9)),
    "parallel": tuple(f"multi_rule_{n}" for n in range(2, 9)),
    "hops": tuple(f"multi_hop_{n}" for n in range(2, 5)),
}
"""Sub-tasks that the paper's tables report as one column: the mean of their means."""

DISPLAYED = ("single_rule", "parallel_2_4", "parallel_5_8", "multi_hop_2", "multi_hop_3", "multi_hop_4")
"""Columns of the paper's main table, in order; its seed spread is over their mean."""


def summarise(
    spec: RunSpec,
    samples: Sequence[Sample],
    workspace: Workspace,
    *,
    num_scheduled: int,
    finished: str,
    method: MethodName | None = None,
) -> Results:
    """Return the content of results.json.

    Parameters
    ----------
    spec : RunSpec
    samples : sequence of Sample
        One per question asked, failed ones included.
    workspace : Workspace
        Gives the pools, for their hash, and the types of the gold rules.
    num_scheduled : int
        Questions that the spec asks.
    finished : str
        When, in ISO 8601.
    method : dict, optional
        ``key`` and ``label``; without it the spec's method, which must be one of ours, is asked.
    """
    scored = [sample for sample in samples if sample["error"] is None]
    if method is None:
        ours: Method = Method.from_dict(spec.method)
        method = {"key": ours.key, "label": ours.label}
    gold = {rule for sample in samples for step in sample["gold_rules"] for rule in step}
    rule_types = workspace.rules(spec.split).types(gold)
    return {
        "schema_version": 2,
        "run_id": spec.run_id,
        "spec": spec.to_dict(),
        "method": {"key": method["key"], "label": method["label"]},
        "n": {"scheduled": num_scheduled, "scored": len(scored), "failed": len(samples) - len(scored)},
        "metrics": metric_estimates(scored, spec.split),
        "details": recall_details(scored, spec.pool_size, rule_types),
        "outcomes": outcome_counts(samples),
        "usage": usage_totals(samples),
        "measures": measure_means(samples),
        "samples_sha256": samples_sha256(list(samples)),
        "pool_sha256": pools_sha256(workspace.pools(spec)),
        "environment": environment(),
        "timing": {
            "seconds": round(sum(sample["seconds"] for sample in samples), 3),
            "finished": finished,
            "stages": stage_seconds(samples),
        },
    }


def metric_estimates(scored: Sequence[Sample], split: str) -> dict[str, Metric]:
    """Return, by metric, the macro average, every sub-task's and group's mean with intervals, and the folds' spread.

    Parameters
    ----------
    scored : sequence of Sample
        Samples without errors.
    split : str
        Split mini also gets the spread over its folds.
    """
    clusters = sample_clusters(scored)
    names = dict.fromkeys(name for sample in scored for name in sample["scores"])
    out: dict[str, Metric] = {}
    for name in names:
        rows = [row for row, sample in enumerate(scored) if name in sample["scores"]]
        values = np.array([scored[row]["scores"][name] for row in rows], dtype=np.float64)
        subtasks = [scored[row]["subtask"] for row in rows]
        found = grouped_estimates(values, subtasks, [clusters[row] for row in rows], GROUPS)
        out[name] = {"macro": found.macro, "by_subtask": found.by_group, "by_group": found.by_set}
        if split == "mini":
            out[name]["folds"] = _folds(values, subtasks, [scored[row]["fold"] for row in rows])
    return out


def _folds(values: np.ndarray, subtasks: Sequence[str], folds: Sequence[int]) -> Folds | None:
    """Return the paper's second column: spread of the macro average over its five seeds."""
    by_fold: dict[int, dict[str, list[float]]] = {}
    for value, subtask, fold in zip(values, subtasks, folds, strict=True):
        by_fold.setdefault(fold, {}).setdefault(subtask, []).append(float(value))
    if len(by_fold) < 2:
        return None
    means = [{name: fmean(part) for name, part in by_fold[fold].items()} for fold in sorted(by_fold)]
    macro = [fmean(found.values()) for found in means]
    deviation, half_width = fold_interval(macro)
    displayed = [mean for found in means if (mean := _displayed(found)) is not None]
    return {
        "values": [round(value, 6) for value in macro],
        "std": round(deviation, 6),
        "t_half": round(half_width, 6),
        # The paper's own overall score of a seed: its tables' columns weigh the same, not the sub-tasks.
        "displayed": [round(value, 6) for value in displayed] if len(displayed) == len(means) else None,
    }


def _displayed(means: dict[str, float]) -> float | None:
    columns = [GROUPS.get(name, (name,)) for name in DISPLAYED]
    if any(subtask not in means for column in columns for subtask in column):
        return None
    return fmean(fmean(means[subtask] for subtask in column) for column in columns)
