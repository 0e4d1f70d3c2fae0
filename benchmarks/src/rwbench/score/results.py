"""results.json: computed from a run's spec and samples, and the types of its rules; from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..methods import Method
from ..run.environment import environment
from ..run.samples import Sample, samples_sha256, write_whole
from ..spec import RunSpec
from .details import measure_means, outcome_counts, recall_details, stage_seconds, usage_totals
from .metrics import metric_estimates

SCHEMA_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 2 added groups, details, outcomes, usage and measures; readers treat them as absent in version 1."""
FILE_NAME = "results.json"

Results = dict[str, Any]


def summarise(
    spec: RunSpec,
    samples: Sequence[Sample],
    num_scheduled: int,
    pool_sha256: str,
    timing: dict[str, Any],
    rule_types: Mapping[int, str] | None = None,
    method: Mapping[str, str] | None = None,
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
    rule_types : mapping of int to str, optional
        Type of every gold rule, for recall by type.
    method : mapping of str to str, optional
        ``key`` and ``label``; without it the spec's method, which must be one of ours, is asked.
    """
    scored = [sample for sample in samples if sample["error"] is None]
    if method is None:
        ours = Method.from_dict(spec.method)
        method = {"key": ours.key, "label": ours.label}
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": spec.run_id,
        "spec": spec.to_dict(),
        "method": dict(method),
        "n": {"scheduled": num_scheduled, "scored": len(scored), "failed": len(samples) - len(scored)},
        "metrics": metric_estimates(scored, spec.split),
        "details": recall_details(scored, spec.pool_size, rule_types),
        "outcomes": outcome_counts(samples),
        "usage": usage_totals(samples),
        "measures": measure_means(samples),
        "samples_sha256": samples_sha256(list(samples)),
        "pool_sha256": pool_sha256,
        "environment": environment(),
        "timing": {**timing, "stages": stage_seconds(samples)},
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
    if found not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise ValueError(
            f"{path} has schema version {found!r}, this rwbench reads {known}; delete it and run the "
            "recipe again: samples are kept, only the summary is rewritten"
        )
    return results


def find_results(folder: Path) -> list[Results]:
    """Return the results of all runs below a folder, by folder name."""
    paths = sorted(folder.glob(f"**/{FILE_NAME}"))
    return [results for path in paths if (results := read_results(path.parent)) is not None]


@lru_cache(maxsize=2)
def results_schema(version: int = SCHEMA_VERSION) -> dict[str, Any]:
    """Return the JSON Schema that every results.json of a version meets."""
    name = "results.schema.json" if version == SCHEMA_VERSION else f"results.v{version}.schema.json"
    return json.loads(files("rwbench").joinpath("schema", name).read_text(encoding="utf-8"))
