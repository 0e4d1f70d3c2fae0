"""results.json: computed from a run's spec and samples, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from .environment import environment
from .methods import Method
from .samples import Sample, samples_sha256, write_whole
from .spec import RunSpec
from .stats import Estimate, cluster_keys, fold_interval, macro_estimates

SCHEMA_VERSION = 1
FILE_NAME = "results.json"

Results = dict[str, Any]


def summarise(
    spec: RunSpec, samples: Sequence[Sample], num_scheduled: int, pool_sha256: str, timing: dict[str, Any]
) -> Results:
    """Return the content of results.json.

    Parameters
    ----------
    spec : RunSpec
    samples : sequence of dict
        One per question asked, failed ones included.
    num_scheduled : int
        Questions that the spec asks.
    pool_sha256 : str
        Hash of the pools (`pools.pools_sha256`).
    timing : dict
        ``seconds`` (null if the run was resumed, so that no total is known), ``samples_per_second``,
        ``finished``.
    """
    scored = [sample for sample in samples if sample["error"] is None]
    method = Method.from_dict(spec.method)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": spec.run_id,
        "spec": spec.to_dict(),
        "method": {"key": method.key, "label": method.label},
        "n": {"scheduled": num_scheduled, "scored": len(scored), "failed": len(samples) - len(scored)},
        "metrics": _metrics(scored, spec),
        "samples_sha256": samples_sha256(list(samples)),
        "pool_sha256": pool_sha256,
        "environment": environment(),
        "timing": timing,
    }


def _metrics(scored: Sequence[Sample], spec: RunSpec) -> dict[str, Any]:
    """Return, by metric, the macro average and every sub-task's mean with intervals."""
    clusters = cluster_keys(
        [sample["world_id"] for sample in scored],
        [[rule for step in sample["gold_rules"] for rule in step] for sample in scored],
    )
    names = list(dict.fromkeys(name for sample in scored for name in sample["scores"]))
    out: dict[str, Any] = {}
    for name in names:
        rows = [row for row, sample in enumerate(scored) if name in sample["scores"]]
        values = np.array([scored[row]["scores"][name] for row in rows], dtype=np.float64)
        subtasks = [scored[row]["subtask"] for row in rows]
        macro, by_subtask = macro_estimates(values, subtasks, [clusters[row] for row in rows])
        out[name] = {
            "macro": _plain(macro),
            "by_subtask": {str(subtask): _plain(estimate) for subtask, estimate in by_subtask.items()},
        }
        if spec.split == "mini":
            out[name]["folds"] = _folds(values, subtasks, [scored[row]["fold"] for row in rows])
    return out


def _plain(estimate: Estimate) -> dict[str, Any]:
    values = {name: round(getattr(estimate, name), 6) for name in ("value", "ci_low", "ci_high")}
    return {**values, "n": estimate.n, "method": estimate.method}


def _folds(values: np.ndarray, subtasks: Sequence[str], folds: Sequence[int]) -> dict[str, Any] | None:
    """Return the paper's second column: spread of the macro average over its five seeds."""
    by_fold: dict[int, dict[str, list[float]]] = {}
    for value, subtask, fold in zip(values, subtasks, folds, strict=True):
        by_fold.setdefault(fold, {}).setdefault(subtask, []).append(float(value))
    if len(by_fold) < 2:
        return None
    macro = [fmean(fmean(part) for part in by_fold[fold].values()) for fold in sorted(by_fold)]
    deviation, half_width = fold_interval(macro)
    return {
        "values": [round(value, 6) for value in macro],
        "std": round(deviation, 6),
        "t_half": round(half_width, 6),
    }


def write_results(folder: Path, results: Results) -> None:
    """Check the results against the schema's required keys and write them in one step."""
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(folder / FILE_NAME, text.encode())


def read_results(folder: Path) -> Results | None:
    """Return a run's results, or None if it has none yet.

    Raises
    ------
    ValueError
        If the file is not readable or has another schema version.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        found = results["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is not a results file; delete it and run the recipe again to rewrite it"
        ) from None
    if found != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {found!r}, this rwbench reads {SCHEMA_VERSION}; delete it and run the "
            "recipe again: samples are kept, only the summary is rewritten"
        )
    return results


def find_results(folder: Path) -> list[Results]:
    """Return the results of all runs below a folder, by folder name."""
    paths = sorted(folder.glob(f"**/{FILE_NAME}"))
    return [results for path in paths if (results := read_results(path.parent)) is not None]


@lru_cache(maxsize=1)
def results_schema() -> dict[str, Any]:
    """Return the JSON Schema that every results.json meets."""
    text = files("rwbench").joinpath("schema", "results.schema.json").read_text(encoding="utf-8")
    return json.loads(text)
