"""Samples in numbers: means with intervals and fold spread, recall by step and type, outcomes, costs, attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, TypeVar

import numpy as np
from ruleworld_data.scoring import step_recalls

from .results import AttentionMap, Details, Estimate, Folds, MeanMeasures, Metric, Total
from .samples import VOLATILE_USAGE, Measures, Sample
from .scoring import Budget, budgets
from .stats import fold_interval, grouped_estimates, sample_clusters

Part = TypeVar("Part", int, str)

DETAIL_DRAWS = 2_000
"""Bootstrap draws for the intervals by step and type; there are many, and none is a headline."""

GROUPS: dict[str, tuple[str, ...]] = {
    "parallel_2_4": tuple(f"multi_rule_{n}" for n in range(2, 5)),
    "parallel_5_8": tuple(f"multi_rule_{n}" for n in range(5, 9)),
    "parallel": tuple(f"multi_rule_{n}" for n in range(2, 9)),
    "hops": tuple(f"multi_hop_{n}" for n in range(2, 5)),
}
"""Sub-tasks that the paper's tables report as one column: the mean of their means."""

DISPLAYED = ("single_rule", "parallel_2_4", "parallel_5_8", "multi_hop_2", "multi_hop_3", "multi_hop_4")
"""Columns of the paper's main table, in order; its seed spread is over their mean."""


def metric_estimates(scored: Sequence[Sample], split: str) -> dict[str, Metric]:
    """Return, by metric, the macro average, every sub-task's and group's mean, and in split mini the folds' spread."""
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


def recall_details(scored: Sequence[Sample], pool_size: int, rule_types: Mapping[int, str]) -> Details:
    """Return recall by step and by rule type of the samples that retrieved anything.

    Parameters
    ----------
    scored : sequence of Sample
        Samples without errors.
    pool_size : int
        Budgets that cover the pool are left out.
    rule_types : mapping of int to str
        Type of every gold rule.

    Returns
    -------
    dict
        ``by_step``: metric -> step number -> estimate, sub-tasks weighing the same. A method that searches once has
        one ranking for all steps, and its K is the question's; a method that searches per step is held to the
        paper's rule: retrieval t against gold step t. ``by_rule_type``: metric -> type -> estimate over questions
        that need such a rule.
    """
    searched = [(sample, found) for sample in scored if (found := sample["retrieved"])]
    samples = [sample for sample, _ in searched]
    clusters, subtasks = sample_clusters(samples), [sample["subtask"] for sample in samples]
    out: Details = {"by_step": {}, "by_rule_type": {}}
    for name, budget in budgets(pool_size).items():
        steps = [_step_recalls(found, sample["gold_rules"], budget) for sample, found in searched]
        types = [_type_recalls(found, sample["gold_rules"], budget, rule_types) for sample, found in searched]
        by_step = [dict(enumerate(recalls, 1)) for recalls in steps]
        out["by_step"][f"recall@{name}"] = _by_part(by_step, subtasks, clusters)
        out["by_rule_type"][f"recall@{name}"] = _by_part(types, ["all"] * len(samples), clusters)
    return out


def outcome_counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Return how often each outcome came up; a sample of an older run counts as ok or failed."""
    found = Counter(s.get("outcome", "ok" if s["error"] is None else "failed") for s in samples)
    return dict(sorted(found.items()))


def usage_totals(samples: Sequence[Sample]) -> dict[str, Total]:
    """Return total and mean per question of every cost that does not depend on the machine."""
    values = _by_name(sample.get("usage", {}) for sample in samples)
    return {
        name: {"total": round(sum(found), 6), "mean": round(fmean(found), 6)}
        for name, found in values.items()
        if name not in VOLATILE_USAGE
    }


def stage_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the seconds that each stage took."""
    values = _by_name(sample.get("usage", {}).get("seconds", {}) for sample in samples)
    return {stage: round(sum(found), 3) for stage, found in values.items()}


def measure_means(samples: Sequence[Sample]) -> MeanMeasures:
    """Return what an analysis measured, averaged over questions; empty if nothing was.

    Returns
    -------
    dict
        ``rule_entropy``: ``layers``, ``mean`` and ``std`` in nats, ``n``. ``rule_attention``: number of gold steps
        S -> ``weights``, one row per retrieval and one column per gold step: the summed weight of that step's gold
        rules, and ``n`` per row.
    """
    found = [sample.get("measures") or {} for sample in samples if sample["error"] is None]
    out: MeanMeasures = {}
    if entropy := [measured for measured in found if "rule_entropy" in measured]:
        columns = list(zip(*(measured["rule_entropy"] for measured in entropy), strict=True))
        out["rule_entropy"] = {
            "layers": list(entropy[0]["rule_layers"]),
            "mean": [round(fmean(column), 6) for column in columns],
            "std": [round(pstdev(column), 6) for column in columns],
            "n": len(entropy),
        }
    by_steps: dict[int, list[list[list[float]]]] = defaultdict(list)
    for measured in found:
        if "rule_attention" in measured:
            by_steps[max(measured["rule_attention_step"]) + 1].append(_by_gold_step(measured))
    if by_steps:
        out["rule_attention"] = {str(size): _mean_rows(maps, size) for size, maps in sorted(by_steps.items())}
    return out


def _by_name(found: Any) -> dict[str, list[float]]:
    """Return name -> its numbers, of mappings from names to numbers."""
    values: dict[str, list[float]] = defaultdict(list)
    for each in found:
        for name, value in each.items():
            if isinstance(value, (int, float)):
                values[name].append(value)
    return dict(sorted(values.items()))


def _folds(values: np.ndarray, subtasks: Sequence[str], folds: Sequence[int]) -> Folds | None:
    """Return the paper's second column: spread of the macro average over its five seeds."""
    by_fold: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for value, subtask, fold in zip(values, subtasks, folds, strict=True):
        by_fold[fold][subtask].append(float(value))
    if len(by_fold) < 2:
        return None
    means = [{name: fmean(part) for name, part in by_fold[fold].items()} for fold in sorted(by_fold)]
    macro = [fmean(found.values()) for found in means]
    deviation, half_width = fold_interval(macro)
    # The paper's own overall score of a seed: its tables' columns weigh the same, not the sub-tasks.
    columns = [GROUPS.get(name, (name,)) for name in DISPLAYED]
    complete = all(name in found for found in means for column in columns for name in column)
    displayed = (
        [fmean(fmean(found[name] for name in column) for column in columns) for found in means]
        if complete
        else None
    )
    return {
        "values": [round(value, 6) for value in macro],
        "std": round(deviation, 6),
        "t_half": round(half_width, 6),
        "displayed": displayed and [round(value, 6) for value in displayed],
    }


def _step_recalls(
    rankings: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], budget: Budget
) -> list[float]:
    if len(rankings) > 1 or len(gold) == 1:
        return step_recalls(rankings, gold, budget)
    top = _top(rankings, gold, budget)
    return [len(top.intersection(step)) / len(set(step)) for step in gold]


def _type_recalls(
    rankings: Sequence[Sequence[int]],
    gold: Sequence[Sequence[int]],
    budget: Budget,
    types: Mapping[int, str],
) -> dict[str, float]:
    top = _top(rankings, gold, budget)
    hits: dict[str, list[bool]] = defaultdict(list)
    for rule in dict.fromkeys(rule for step in gold for rule in step):
        hits[types[rule]].append(rule in top)
    return {kind: fmean(found) for kind, found in hits.items()}


def _top(rankings: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], budget: Budget) -> set[int]:
    """Return the rules looked at: of one ranking by the question's budget, of several each by its step's."""
    parts = gold if len(rankings) > 1 else [[rule for step in gold for rule in step]]
    kept = (
        ranked[: len(set(part)) if budget == "gold" else budget]
        for ranked, part in zip(rankings, parts, strict=False)
    )
    return {rule for ranked in kept for rule in ranked}


def _by_part(
    found: Sequence[Mapping[Part, float]], groups: Sequence[str], clusters: Sequence[Hashable]
) -> dict[str, Estimate]:
    """Return part -> estimate over the questions that have the part, in the order of the parts."""
    out = {}
    for part in sorted({part for recalls in found for part in recalls}):
        rows = [row for row, recalls in enumerate(found) if part in recalls]
        values = np.array([found[row][part] for row in rows])
        kept = [groups[row] for row in rows], [clusters[row] for row in rows]
        out[str(part)] = grouped_estimates(values, *kept, draws=DETAIL_DRAWS).macro
    return out


def _by_gold_step(measured: Measures) -> list[list[float]]:
    """Sum the columns of each gold step."""
    steps = measured["rule_attention_step"]
    return [
        [
            sum(weight for weight, step in zip(row, steps, strict=True) if step == column)
            for column in range(max(steps) + 1)
        ]
        for row in measured["rule_attention"]
    ]


def _mean_rows(maps: Sequence[Sequence[Sequence[float]]], size: int) -> AttentionMap:
    """Average maps row by row; a map with fewer retrievals than steps lacks the last rows, extra ones are dropped."""
    weights, counts = [], []
    for number in range(size):
        rows = [found[number] for found in maps if number < len(found)]
        counts.append(len(rows))
        weights.append(
            [round(fmean(column), 6) for column in zip(*rows, strict=True)] if rows else [0.0] * size
        )
    return {"weights": weights, "n": counts}
