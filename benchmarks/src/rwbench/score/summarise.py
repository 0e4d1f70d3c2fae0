"""Samples in numbers: means with intervals and fold spread, recall by step and type, outcomes, costs, attention."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np
from ruleworld_data.scoring import step_recalls

from ..spec import RunSpec
from .results import AttentionMap, Folds, MeanMeasures, Metric, Summary, Total
from .samples import VOLATILE_USAGE, Sample
from .scoring import Budget, budgets
from .stats import fold_interval, grouped_estimates, sample_clusters

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


def summary(spec: RunSpec, samples: Sequence[Sample], num_scheduled: int) -> Summary:
    """Return every part of `Results` that follows from the samples alone; so many questions the spec asks.

    A ValueError if some have answers, or rules that were found, and others none: a mean over some would be no score.
    """
    scored = [sample for sample in samples if sample["error"] is None]
    for field in ("answers", "retrieved"):
        if len({sample[field] is None for sample in scored}) > 1:
            raise ValueError(f"{field} are null for some questions only; give an empty list there")
    # A sample of an older run has no outcome.
    outcomes = Counter(s.get("outcome", "ok" if s["error"] is None else "failed") for s in samples)
    return {
        "n": {"scheduled": num_scheduled, "scored": len(scored), "failed": len(samples) - len(scored)},
        "metrics": metric_estimates(scored, spec.split),
        "details": recall_details(scored, spec.pool_size),
        "outcomes": dict(sorted(outcomes.items())),
        "usage": usage_totals(samples),
        "measures": measure_means(scored),
    }


def metric_estimates(scored: Sequence[Sample], split: str) -> dict[str, Metric]:
    """Return, by metric, the macro average, every sub-task's and group's mean, and in split mini the folds' spread."""
    clusters = sample_clusters(scored)
    names = dict.fromkeys(name for sample in scored for name in sample["scores"])
    out: dict[str, Metric] = {}
    for name in names:
        rows = [row for row, sample in enumerate(scored) if name in sample["scores"]]
        values = np.array([scored[row]["scores"][name] for row in rows], dtype=np.float64)
        subtasks = [scored[row]["subtask"] for row in rows]
        out[name] = grouped_estimates(values, subtasks, [clusters[row] for row in rows], GROUPS)
        if split == "mini":
            out[name]["folds"] = _folds(values, subtasks, [scored[row]["fold"] for row in rows])
    return out


def recall_details(scored: Sequence[Sample], pool_size: int) -> dict[Literal["by_step"], Any]:
    """Return recall by step of the samples (none of them failed) that retrieved anything.

    ``by_step`` maps metric -> step number -> estimate, sub-tasks weighing the same. A method that searches once has
    one ranking for all steps, and its K is the question's; a method that searches per step is held to the paper's
    rule: retrieval t against gold step t. Budgets that cover the pool are left out.
    """
    searched = [sample for sample in scored if sample["retrieved"]]
    clusters, subtasks = sample_clusters(searched), [sample["subtask"] for sample in searched]
    by_step: dict[str, Any] = {}
    for name, budget in budgets(pool_size).items():
        recalls = [_step_recalls(s["retrieved"] or [], s["gold_rules"], budget) for s in searched]
        parts = by_step[f"recall@{name}"] = {}
        for step in range(max(map(len, recalls), default=0)):
            rows = [row for row, steps in enumerate(recalls) if step < len(steps)]
            values = np.array([recalls[row][step] for row in rows])
            kept = [subtasks[row] for row in rows], [clusters[row] for row in rows]
            parts[str(step + 1)] = grouped_estimates(values, *kept, draws=DETAIL_DRAWS)["macro"]
    return {"by_step": by_step}


def usage_totals(samples: Sequence[Sample]) -> dict[str, Total]:
    """Return total and mean per question of every cost that does not depend on the machine."""
    values: dict[str, list[float]] = defaultdict(list)
    for name, value in (cost for sample in samples for cost in sample.get("usage", {}).items()):
        if name not in VOLATILE_USAGE and isinstance(value, (int, float)):
            values[name].append(value)
    return {
        name: {"total": round(sum(costs), 6), "mean": round(fmean(costs), 6)}
        for name, costs in sorted(values.items())
    }


def measure_means(scored: Sequence[Sample]) -> MeanMeasures:
    """Return what an analysis measured, averaged over questions; empty if nothing was.

    ``rule_entropy`` is in nats by layer. ``rule_attention`` maps the number of gold steps to ``weights``, one row per
    retrieval and one column per gold step: the summed weight of that step's gold rules; ``n`` counts questions by row.
    """
    measures = [sample.get("measures") or {} for sample in scored]
    out: MeanMeasures = {}
    if entropy := [measured for measured in measures if "rule_entropy" in measured]:
        columns = list(zip(*(measured["rule_entropy"] for measured in entropy), strict=True))
        out["rule_entropy"] = {
            "layers": list(entropy[0]["rule_layers"]),
            "mean": [round(fmean(column), 6) for column in columns],
            "std": [round(pstdev(column), 6) for column in columns],
            "n": len(entropy),
        }
    by_steps: dict[int, list[np.ndarray]] = defaultdict(list)
    for measured in measures:
        if "rule_attention" in measured:
            weights, steps = np.array(measured["rule_attention"]), np.array(measured["rule_attention_step"])
            columns = [weights[:, steps == step].sum(1) for step in range(max(steps) + 1)]
            by_steps[len(columns)].append(np.stack(columns, axis=1))
    if by_steps:
        out["rule_attention"] = {str(size): _mean_rows(maps, size) for size, maps in sorted(by_steps.items())}
    return out


def _folds(values: np.ndarray, subtasks: Sequence[str], folds: Sequence[int]) -> Folds | None:
    """Return the paper's second column: spread of the macro average over its five seeds."""
    by_fold: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for value, subtask, fold in zip(values, subtasks, folds, strict=True):
        by_fold[fold][subtask].append(float(value))
    if len(by_fold) < 2:
        return None
    means = [{name: fmean(part) for name, part in by_fold[fold].items()} for fold in sorted(by_fold)]
    macro = [fmean(by_subtask.values()) for by_subtask in means]
    deviation, half_width = fold_interval(macro)
    # The paper's own overall score of a seed: its tables' columns weigh the same, not the sub-tasks.
    columns = [GROUPS.get(name, (name,)) for name in DISPLAYED]
    displayed = None
    if all(name in by_subtask for by_subtask in means for column in columns for name in column):
        displayed = [
            round(fmean(fmean(by_subtask[name] for name in column) for column in columns), 6)
            for by_subtask in means
        ]
    return {
        "values": [round(value, 6) for value in macro],
        "std": round(deviation, 6),
        "t_half": round(half_width, 6),
        "displayed": displayed,
    }


def _step_recalls(
    rankings: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], budget: Budget
) -> list[float]:
    if len(rankings) > 1 or len(gold) == 1:
        return step_recalls(rankings, gold, budget)
    size = len({rule for step in gold for rule in step}) if budget == "gold" else budget
    top = set(rankings[0][:size])
    return [len(top.intersection(step)) / len(set(step)) for step in gold]


def _mean_rows(maps: Sequence[np.ndarray], size: int) -> AttentionMap:
    """Average maps row by row; a map with fewer retrievals than steps lacks the last rows, extra ones are dropped."""
    rows = [[weights[number] for weights in maps if number < len(weights)] for number in range(size)]
    means = [list(map(fmean, zip(*row, strict=True))) if row else [0.0] * size for row in rows]
    weights = [[round(value, 6) for value in mean] for mean in means]
    return {"weights": weights, "n": [len(row) for row in rows]}
