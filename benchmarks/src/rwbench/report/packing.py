"""From a folder of runs to one small enough to commit (`score.packed`)."""

from collections.abc import Sequence
from pathlib import Path

from ..run.folder import check_follows
from ..score.packed import is_packed, write_packed
from ..score.results import FILE_NAME, Results, find_results, find_samples


def pack(results: Sequence[Results], folder: Path, to: Path) -> int:
    """Write what `report`, `compare` and `trace` need of some runs in ``folder``, and return the bytes written.

    The same runs give the same bytes. A ValueError if the samples of a run are missing or are not those of its results,
    or ``to`` holds other runs or lies in ``folder``.
    """
    if is_packed(folder):
        raise ValueError(f"{folder} is packed already; give the folder of its runs, or copy it as it is")
    if folder.resolve() in to.resolve().parents:
        raise ValueError(
            f"{to} lies in {folder}, so a later report of {folder} would count every run twice; choose a folder outside"
        )
    ids = {run["run_id"] for run in results}
    if others := sorted({run["run_id"] for run in find_results(to)} - ids if to.is_dir() else ()):
        raise ValueError(
            f"{to} holds {len(others)} runs that are not among these (first: {others[0]}), and a report would mix "
            f"them; remove {to}, or choose another folder"
        )
    runs = []
    for run in results:
        if (samples := find_samples(folder, run["run_id"])) is None:
            raise ValueError(
                f"run {run['run_id']} has no samples beside its {FILE_NAME}; run its recipe again, then pack"
            )
        check_follows(run, samples)
        runs.append((run, samples))
    write_packed(to, runs)
    return sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
