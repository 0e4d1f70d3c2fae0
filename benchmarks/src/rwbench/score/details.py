"""What results.json says beside the averages: by step, by rule type, outcomes, costs, measured attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from ruleworld_data.scoring.answers import step_recalls

from ..run.samples import VOLATILE_USAGE, Sample
from .metrics import plain, sample_clusters
from .scoring import RECALL_BUDGETS
from .stats import macro_estimates

DRAWS = 2_000
"""Bootstrap draws of these intervals; there are many, and none is a headline."""


def recall_details(
    scored: Sequence[Sample], pool_size: int, rule_types: Mapping[int, str] | None
) -> dict[str, Any]:
    """Return recall by step and by rule type.

    Parameters
    ----------
    scored : sequence of dict
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
    samples = [sample for sample in scored if sample["retrieved"]]
    clusters = sample_clusters(samples)
    out: dict[str, Any] = {"by_step": {}}
    if rule_types is not None:
        out["by_rule_type"] = {}
    for name, budget in RECALL_BUDGETS.items():
        if isinstance(budget, int) and budget >= pool_size:
            continue
        steps: dict[int, list[tuple[int, float]]] = defaultdict(list)
        types: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for row, sample in enumerate(samples):
            for number, recall in enumerate(_step_recalls(sample, budget), 1):
                steps[number].append((row, recall))
            if rule_types is not None:
                for kind, recall in _type_recalls(sample, budget, rule_types).items():
                    types[kind].append((row, recall))
        groups = [sample["subtask"] for sample in samples]
        metric = f"recall@{name}"
        out["by_step"][metric] = {str(n): _mean(rows, groups, clusters) for n, rows in sorted(steps.items())}
        if rule_types is not None:
            one = ["all"] * len(samples)
            out["by_rule_type"][metric] = {k: _mean(rows, one, clusters) for k, rows in sorted(types.items())}
    return out


def outcome_counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Return how often each outcome came up; a sample of an older run counts as ok or failed."""
    found = Counter(
        sample.get("outcome", "ok" if sample["error"] is None else "failed") for sample in samples
    )
    return dict(sorted(found.items()))


def usage_totals(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
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
    total: Counter[str] = Counter()
    for sample in samples:
        for stage, seconds in sample.get("usage", {}).get("seconds", {}).items():
            total[stage] += seconds
    return {stage: round(seconds, 3) for stage, seconds in sorted(total.items())}


def measure_means(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return what an analysis measured, averaged over questions.

    Returns
    -------
    dict
        ``rule_entropy``: ``layers``, ``mean`` and ``std`` in nats, ``n``. ``rule_attention``: number of gold steps
        S -> ``weights``, one row per retrieval and one column per gold step: the summed weight of that step's gold
        rules, and ``n`` per row. Empty if nothing was measured.
    """
    found = [sample.get("measures") or {} for sample in samples if sample["error"] is None]
    out: dict[str, Any] = {}
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


def _step_recalls(sample: Sample, budget: int | str) -> list[float]:
    rankings, gold = sample["retrieved"], sample["gold_rules"]
    if len(rankings) > 1 or len(gold) == 1:
        return step_recalls(rankings, gold, budget)  # type: ignore[arg-type]
    top = set(rankings[0][: _budget(gold, budget)])
    return [len(top.intersection(step)) / len(set(step)) for step in gold]


def _type_recalls(sample: Sample, budget: int | str, types: Mapping[int, str]) -> dict[str, float]:
    rankings, gold = sample["retrieved"], sample["gold_rules"]
    if len(rankings) == 1:
        top = set(rankings[0][: _budget(gold, budget)])
    else:
        kept = [ranked[: _budget([step], budget)] for ranked, step in zip(rankings, gold, strict=False)]
        top = {rule for ranked in kept for rule in ranked}
    hits: dict[str, list[bool]] = defaultdict(list)
    for rule in dict.fromkeys(rule for step in gold for rule in step):
        hits[types[rule]].append(rule in top)
    return {kind: fmean(found) for kind, found in hits.items()}


def _budget(gold: Sequence[Sequence[int]], budget: int | str) -> int:
    return budget if isinstance(budget, int) else len({rule for step in gold for rule in step})


def _mean(
    rows: Sequence[tuple[int, float]], groups: Sequence[str], clusters: Sequence[tuple[str, int]]
) -> dict[str, Any]:
    values = np.array([value for _, value in rows])
    places = [row for row, _ in rows]
    macro, _ = macro_estimates(values, [groups[r] for r in places], [clusters[r] for r in places], DRAWS)
    return plain(macro)


def _by_gold_step(measured: Mapping[str, Any]) -> list[list[float]]:
    """Sum the columns of each gold step."""
    steps = measured["rule_attention_step"]
    size = max(steps) + 1
    return [
        [
            sum(weight for weight, step in zip(row, steps, strict=True) if step == column)
            for column in range(size)
        ]
        for row in measured["rule_attention"]
    ]


def _mean_rows(maps: Sequence[Sequence[Sequence[float]]], size: int) -> dict[str, Any]:
    """Average maps row by row; a map with fewer retrievals than steps lacks the last rows, extra ones are dropped."""
    weights, counts = [], []
    for number in range(size):
        rows = [found[number] for found in maps if number < len(found)]
        counts.append(len(rows))
        weights.append(
            [round(fmean(column), 6) for column in zip(*rows, strict=True)] if rows else [0.0] * size
        )
    return {"weights": weights, "n": counts}
