"""Runs against a first one: paired differences on the questions that both answered, and what differs in their specs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.spec import check_name

from ..run.folder import finished_run
from ..score.results import Results
from ..score.samples import Sample
from ..score.stats import holm, paired_difference, sample_clusters
from ..spec import spec_differences
from .setting import ANSWERS, MAIN_METRIC

SAME_QUESTIONS = ("scale", "world_seed", "dials", "data", "split", "scorer_version")
"""Fields of the spec that must agree: otherwise equal ids are not equal questions, or scores not one measure."""

Comparison = dict[str, Any]
Run = tuple[Results, dict[str, Sample]]
"""Results, and the samples that did not fail by id."""


def compare_runs(folders: Sequence[Path], metrics: Sequence[str] = ()) -> Comparison:
    """Compare every run with the first; by default by exact match if all runs answer, else by Recall@1.

    ``tests`` says over how many p values Holm's correction goes. A ValueError if there are fewer than two runs, they
    asked different questions or share none, or a metric is missing.
    """
    if len(folders) < 2:
        raise ValueError(f"compare needs at least two runs, got {len(folders)}; rwbench report lists them")
    first, *others = (
        (results, {sample["id"]: sample for sample in samples if sample["error"] is None})
        for results, samples in map(finished_run, folders)
    )
    shared = [name for name in first[0]["metrics"] if all(name in run["metrics"] for run, _ in others)]
    if not shared:
        raise ValueError("these runs share no metric: some only search and some only answer")
    chosen = [check_name("metric that all runs have", name, shared) for name in metrics]
    chosen = chosen or [next((name for name in (ANSWERS, MAIN_METRIC) if name in shared), shared[0])]
    comparisons = [_against(first, other, chosen) for other in others]
    tested = [entry for comparison in comparisons for entry in comparison["metrics"].values()]
    p_values = holm([entry["difference"]["p_value"] for entry in tested])
    for entry, p_value in zip(tested, p_values, strict=True):
        entry["p_holm"] = p_value
    return {"baseline": _head(first[0]), "comparisons": comparisons, "metrics": chosen, "tests": len(tested)}


def _against(first: Run, second: Run, metrics: Sequence[str]) -> Comparison:
    (ours, our_samples), (theirs, their_samples) = first, second
    differences = spec_differences(ours["spec"], theirs["spec"])
    names = f"runs {ours['run_id']} and {theirs['run_id']}"
    for name in SAME_QUESTIONS:
        if name in differences:
            values = "{!r} in one and {!r} in the other".format(*differences[name])
            raise ValueError(f"{names} cannot be paired: {name} is {values}; take runs on the same questions")
    shared = [(sample, their_samples[name]) for name, sample in our_samples.items() if name in their_samples]
    compared = {}
    for metric in metrics:
        pairs = [pair for pair in shared if all(metric in sample["scores"] for sample in pair)]
        if not pairs:
            raise ValueError(f"{names} share no question scored by {metric}")
        scores = np.array([[sample["scores"][metric] for sample in pair] for pair in pairs]).T
        mine = [sample for sample, _ in pairs]
        subtasks = np.array([sample["subtask"] for sample in mine])
        means = [np.mean([row[subtasks == name].mean() for name in np.unique(subtasks)]) for row in scores]
        found = paired_difference(scores[0], scores[1], subtasks.tolist(), sample_clusters(mine))._asdict()
        compared[metric] = {
            "first": round(float(means[0]), 6),
            "second": round(float(means[1]), 6),
            "difference": {k: round(v, 6) if isinstance(v, float) else v for k, v in found.items()},
        }
    return {**_head(theirs), "spec_differences": differences, "metrics": compared}


def _head(run: Results) -> dict[str, Any]:
    spec = run["spec"]
    where = f"{spec['representation'].upper()}, {spec['pool_size']:,} rules"
    return {"run_id": run["run_id"], "label": f"{run['method']['label']}, {where}"}
