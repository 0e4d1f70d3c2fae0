"""What results.json says beside the averages: by step, by rule type, outcomes, costs, measured attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import TypeVar

import numpy as np
from ruleworld_data.scoring import step_recalls

from ..run.samples import VOLATILE_USAGE, Measures, Sample
from .results import AttentionMap, Details, Estimate, MeanMeasures, Total
from .scoring import Budget, budgets
from .stats import grouped_estimates, sample_clusters

Part = TypeVar("Part", int, str)

DRAWS = 2_000
"""Bootstrap draws of these intervals; there are many, and none is a headline."""


def recall_details(scored: Sequence[Sample], pool_size: int, rule_types: Mapping[int, str] | None) -> Details:
    """Return recall by step and by rule type.

    Parameters
    ----------
    scored : sequence of Sample
        Samples without errors; those that retrieved nothing are left out.
    pool_size : int
        Budgets that cover the pool are left out.
    rule_types : mapping of int to str, optional
        Type of every gold rule; without it there is no ``by_rule_type``.

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
    out: Details = {"by_step": {}}
    if rule_types is not None:
        out["by_rule_type"] = {}
    for name, budget in budgets(pool_size).items():
        steps = [_step_recalls(found, sample["gold_rules"], budget) for sample, found in searched]
        by_step = [dict(enumerate(recalls, 1)) for recalls in steps]
        out["by_step"][f"recall@{name}"] = _by_part(by_step, subtasks, clusters)
        if rule_types is not None:
            by_type = [
                _type_recalls(found, sample["gold_rules"], budget, rule_types) for sample, found in searched
            ]
            out["by_rule_type"][f"recall@{name}"] = _by_part(by_type, ["all"] * len(samples), clusters)
    return out


def outcome_counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Return how often each outcome came up; a sample of an older run counts as ok or failed."""
    found = Counter(
        sample.get("outcome", "ok" if sample["error"] is None else "failed") for sample in samples
    )
    return dict(sorted(found.items()))


def usage_totals(samples: Sequence[Sample]) -> dict[str, Total]:
    """Return total and mean per question of every cost that does not depend on the machine."""
    values: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for name, value in sample.get("usage", {}).items():
            if name not in VOLATILE_USAGE and isinstance(value, (int, float)):
                values[name].append(value)
    return {
        name: {"total": round(sum(found), 6), "mean": round(fmean(found), 6)}
        for name, found in sorted(values.items())
    }


def stage_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the seconds that each stage took."""
    total: dict[str, float] = defaultdict(float)
    for sample in samples:
        for stage, seconds in sample.get("usage", {}).get("seconds", {}).items():
            total[stage] += seconds
    return {stage: round(seconds, 3) for stage, seconds in sorted(total.items())}


def measure_means(samples: Sequence[Sample]) -> MeanMeasures:
    """Return what an analysis measured, averaged over questions.

    Returns
    -------
    dict
        ``rule_entropy``: ``layers``, ``mean`` and ``std`` in nats, ``n``. ``rule_attention``: number of gold steps
        S -> ``weights``, one row per retrieval and one column per gold step: the summed weight of that step's gold
        rules, and ``n`` per row. Empty if nothing was measured.
    """
    found = [sample.get("measures") or {} for sample in samples if sample["error"] is None]
    out: MeanMeasures = {}
    entropy = [m for m in found if "rule_entropy" in m]
    if entropy:
        columns = list(zip(*(m["rule_entropy"] for m in entropy), strict=True))
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
    found: Sequence[Mapping[Part, float]],
    groups: Sequence[str],
    clusters: Sequence[Hashable],
) -> dict[str, Estimate]:
    """Return part -> estimate over the questions that have the part, in the order of the parts."""
    rows_of: dict[Part, list[int]] = defaultdict(list)
    for row, recalls in enumerate(found):
        for part in recalls:
            rows_of[part].append(row)
    out = {}
    for part in sorted(rows_of):
        rows = rows_of[part]
        values = np.array([found[row][part] for row in rows])
        estimates = grouped_estimates(
            values, [groups[row] for row in rows], [clusters[row] for row in rows], draws=DRAWS
        )
        out[str(part)] = estimates.macro
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
