"""Runs against a first one: paired differences on the questions that both answered, and what differs in their specs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruleworld_data.spec import check_name

from ..score.packed import is_packed, packed_results
from ..score.results import Results, read_results, run_samples
from ..score.samples import Sample
from ..score.stats import Difference, holm, paired_difference, sample_clusters
from ..spec import spec_differences
from .setting import ANSWERS, MAIN_METRIC

SAME_QUESTIONS = ("scale", "world_seed", "dials", "data", "split", "scorer_version")
"""Fields of the spec that must agree: otherwise equal ids are not equal questions, or scores not one measure."""

Comparison = dict[str, Any]


def compare_runs(folders: Sequence[Path], metrics: Sequence[str] = ()) -> Comparison:
    """Compare every run with the first.

    Parameters
    ----------
    folders : sequence of Path
        Folders of finished runs; the first is the baseline.
    metrics : sequence of str
        Names as in results.json; by default exact match if all runs answer, else Recall@1.

    Returns
    -------
    dict
        ``baseline``, ``comparisons`` (per run: ``spec_differences`` and per metric the paired ``difference`` with
        ``p_holm``), ``tests``: over how many p values Holm's correction goes.

    Raises
    ------
    ValueError
        If there are fewer than two runs, they asked different questions or share none, or a metric is missing.
    """
    if len(folders) < 2:
        raise ValueError(
            f"compare needs at least two runs, got {len(folders)}; rwbench report DIR shows their ids"
        )
    loaded = [_load(folder) for folder in folders]
    shared = [name for name in loaded[0][0]["metrics"] if all(name in run["metrics"] for run, _ in loaded)]
    if not shared:
        raise ValueError("these runs share no metric: some only search and some only answer")
    chosen = [check_name("metric that all runs have", name, shared) for name in metrics]
    chosen = chosen or [ANSWERS if ANSWERS in shared else MAIN_METRIC if MAIN_METRIC in shared else shared[0]]
    (first, first_samples), others = loaded[0], loaded[1:]
    comparisons = [_against(first, first_samples, run, samples, chosen) for run, samples in others]
    tested = [entry for comparison in comparisons for entry in comparison["metrics"].values()]
    for entry, p_value in zip(
        tested, holm([entry["difference"]["p_value"] for entry in tested]), strict=True
    ):
        entry["p_holm"] = p_value
    return {"baseline": _head(first), "comparisons": comparisons, "metrics": chosen, "tests": len(tested)}


def find_run(name: str, out: Path) -> Path:
    """Return the folder of a run, given as a path or as the start of a run id below ``out``.

    Raises
    ------
    FileNotFoundError
        If there is no such run, or more than one.
    """
    if Path(name).is_dir() or is_packed(Path(name).parent):
        return Path(name)
    ids = [run["run_id"] for run in packed_results(out)] if is_packed(out) else []
    ids += [path.name for path in sorted(out.glob("*")) if path.is_dir()]
    matches = [out / run_id for run_id in ids if run_id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    what = f"{len(matches)} runs" if matches else "no run"
    raise FileNotFoundError(
        f"{what} named {name!r} in {out}; give a run folder, or the start of one id (rwbench report {out})"
    )


def _load(folder: Path) -> tuple[Results, dict[str, Sample]]:
    results = read_results(folder)
    if results is None:
        raise FileNotFoundError(f"{folder} has no results.json; finish the run first: rwbench run")
    samples = {sample["id"]: sample for sample in run_samples(folder) or []}
    return results, {name: sample for name, sample in samples.items() if sample["error"] is None}


def _against(
    first: Results,
    first_samples: dict[str, Sample],
    second: Results,
    second_samples: dict[str, Sample],
    metrics: Sequence[str],
) -> Comparison:
    differences = spec_differences(first["spec"], second["spec"])
    for name in SAME_QUESTIONS:
        if name in differences:
            ours, theirs = differences[name]
            raise ValueError(
                f"runs {first['run_id']} and {second['run_id']} cannot be paired: {name} is {ours!r} in one and "
                f"{theirs!r} in the other; compare runs on the same questions"
            )
    compared = {}
    for metric in metrics:
        pairs = [
            (sample, other)
            for name, sample in first_samples.items()
            if (other := second_samples.get(name))
            and metric in sample["scores"]
            and metric in other["scores"]
        ]
        if not pairs:
            raise ValueError(
                f"runs {first['run_id']} and {second['run_id']} share no question scored by {metric}"
            )
        scores = np.array([[sample["scores"][metric] for sample in pair] for pair in pairs]).T
        mine = [sample for sample, _ in pairs]
        clusters, subtasks = sample_clusters(mine), np.array([sample["subtask"] for sample in mine])
        names = np.unique(subtasks)
        means = [float(np.mean([values[subtasks == name].mean() for name in names])) for values in scores]
        compared[metric] = {
            "first": round(means[0], 6),
            "second": round(means[1], 6),
            "difference": _rounded(paired_difference(scores[0], scores[1], subtasks.tolist(), clusters)),
        }
    return {**_head(second), "spec_differences": differences, "metrics": compared}


def _rounded(difference: Difference) -> dict[str, Any]:
    values = difference._asdict()
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


def _head(run: Results) -> dict[str, Any]:
    spec = run["spec"]
    where = f"{spec['representation'].upper()}, {spec['pool_size']:,} rules"
    return {"run_id": run["run_id"], "label": f"{run['method']['label']}, {where}"}
