"""A command's work: all runs of a recipe, planned, or one after another, in several processes, or on a cluster."""

import os
from collections.abc import Sequence
from concurrent.futures import as_completed

from ruleworld_data.io import Progress, worker_pool

from ..methods import Method
from ..score.results import Results
from ..spec import RunSpec
from .data import DataSource
from .folder import Plan
from .runner import run_spec


def usable(specs: Sequence[RunSpec]) -> tuple[list[RunSpec], list[str]]:
    """Split runs into those that can run here and notes about the others, each with what to type."""
    ready: list[RunSpec] = []
    notes: dict[str, None] = {}
    for spec in specs:
        method: Method = Method.from_dict(spec.method)
        if need := method.missing():
            notes[f"{method.label} (needs: {need})"] = None
        else:
            ready.append(spec)
    return ready, list(notes)


def run_all(plans: Sequence[Plan], source: DataSource, jobs: int, progress: Progress) -> list[Results]:
    """Run every plan in so many processes (1: in this one); return the results in the order of the plans."""
    if jobs == 1 or len(plans) < 2:
        return [run_spec(plan.spec, source, plan.folder.parent, progress) for plan in plans]
    with worker_pool(jobs, threads=max(1, (os.cpu_count() or 1) // jobs)) as pool:
        futures = {pool.submit(run_spec, plan.spec, source, plan.folder.parent): plan for plan in plans}
        for future in as_completed(futures):
            failed = future.result()["n"]["failed"]
            for number in range(futures[future].left):
                progress.step(failed=number < failed)
    return [future.result() for future in futures]


def run_on_cluster(plans: Sequence[Plan], source: DataSource, address: str) -> None:
    """Run plans as tasks of a Ray cluster, whose nodes share the folder of runs."""
    from ruleworld_data.io import run_on_ray

    # Tasks run in folders, and environments, of their own; a key stays in the environment of each node.
    work = [(plan.spec, plan.folder.parent.absolute()) for plan in plans]
    settings = {
        name: value for name, value in os.environ.items() if name.startswith(("_RULEWORLD", "_RWBENCH"))
    }

    def part(number: int, total: int) -> None:
        os.environ.update(settings)
        for spec, out in work[number - 1 :: total]:
            run_spec(spec, source, out)

    with Progress("shards") as progress:
        run_on_ray(address, part, len(work), progress.update)
