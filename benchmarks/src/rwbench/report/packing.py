"""From a folder of runs to one small enough to commit: results, samples compressed, and which recipe made which run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ruleworld_data.io import write_whole

from ..run.folder import read_manifests
from ..score.results import FILE_NAME, Results, find_results, write_results
from ..score.samples import PACKED_FILE, compressed, read_samples, samples_path, samples_sha256


def pack(results: Sequence[Results], folder: Path, to: Path, recipe: str | None = None) -> int:
    """Write what `report`, `compare` and `trace` need of some runs in ``folder``, and return the bytes written.

    The same runs give the same bytes. Of the recipes' lists of runs, all are taken along, or that of ``recipe`` only.

    Raises
    ------
    ValueError
        If the samples of a run are missing or are not those of its results, or ``to`` holds other runs or lies in
        ``folder``.
    """
    if folder.resolve() in to.resolve().parents:
        raise ValueError(
            f"{to} lies in {folder}, so a later report of {folder} would count every run twice; choose a folder outside"
        )
    ids = {run["run_id"] for run in results}
    if others := sorted({run["run_id"] for run in find_results(to)} - ids):
        raise ValueError(
            f"{to} holds {len(others)} runs that are not among these (first: {others[0]}), and a report would mix "
            f"them; remove {to}, or choose another folder"
        )
    bodies = {run["run_id"]: _body(run, folder) for run in results}
    for run in results:
        place = to / run["run_id"]
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / PACKED_FILE, bodies[run["run_id"]])
        # Last, since a folder without results is no finished run.
        write_results(place, run)
    for manifest in read_manifests(folder):
        if recipe in (None, manifest.recipe) and ids & set(manifest.runs):
            manifest.write(to)
    return sum(path.stat().st_size for path in to.rglob("*") if path.is_file())


def _body(run: Results, folder: Path) -> bytes:
    path = samples_path(folder, run["run_id"])
    samples = read_samples(path) if path else []
    if samples_sha256(samples) != run["samples_sha256"]:
        what = f"{path} holds other samples than" if path else "there are no samples beside"
        raise ValueError(
            f"{what} the {FILE_NAME} of run {run['run_id']} ({run['n']['scored']} scored, {len(samples)} here); "
            f"finish the run and pack again: rwbench resume {folder}"
        )
    return compressed(samples)
