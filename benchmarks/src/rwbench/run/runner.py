"""From a spec to a run folder: ``spec.json``, then ``samples.jsonl`` line by line, then ``results.json``.

Killing the process at any byte costs at most the question in flight: running the same spec again asks only
what is missing and ends with the same results. The runs of a recipe go one after another, in several processes, or on
a cluster.
"""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import as_completed
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import from_json
from ruleworld_data.io import Progress, worker_pool, write_whole

from ..backends import GoneError
from ..methods import Method, Output
from ..score.results import MethodName, Results, read_results, write_results
from ..score.samples import (
    DISK_FULL,
    SAMPLES_FILE,
    Sample,
    SampleLog,
    check_sample,
    read_samples,
    samples_sha256,
)
from ..score.scoring import score
from ..score.summarise import summary
from ..spec import RunSpec, json_bytes, json_line
from .data import DataSource, Question
from .environment import environment
from .folder import SPEC_FILE, Plan, exclusive, finished_run, make_plan
from .pools import Pool, pools_of, pools_sha256

MAX_ERROR = 2_000
"""Characters kept of what went wrong."""


def run_spec(spec: RunSpec, source: DataSource, out: Path, progress: Progress | None = None) -> Results:
    """Run a spec to its end below ``out``, taking up whatever an earlier attempt left, and return its results.

    ``progress`` steps once per sample. A ValueError if the folder belongs to another spec, another process holds it, or
    the spec does not fit the data; after a GoneError, or an OSError of a full disk, finished samples are kept.
    """
    folder = out / spec.run_id
    if not folder.is_dir() and read_results(folder) is not None:  # packed
        return finished_run(folder)[0]
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        plan = make_plan(spec, source, out)
        if plan.results is not None:
            return plan.results
        if not (folder / SPEC_FILE).is_file():
            write_whole(folder / SPEC_FILE, json_bytes(spec.to_dict()))
        pools = pools_of(spec, source)
        method: Method = Method.from_dict(spec.method)
        name = f"{method.label}, {spec.representation.upper()}, {spec.pool_size:,} rules"
        with SampleLog(folder / SAMPLES_FILE) as log:
            if any(question.id not in log.done for pool in pools for question in pool.questions):
                method.prepare(pools)
                for sample in _ask(method, pools, log.done, spec):
                    log.append(sample)
                    if progress is not None:
                        progress.step(failed=sample["error"] is not None, text=name)
        results = summarise(
            spec,
            read_samples(folder / SAMPLES_FILE),
            pools,
            num_scheduled=plan.scheduled,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            method={"key": method.key, "label": method.label},
        )
        write_results(folder, results)
        return results


def summarise(
    spec: RunSpec,
    samples: Sequence[Sample],
    pools: Sequence[Pool],
    *,
    num_scheduled: int,
    finished: str,
    method: MethodName,
) -> Results:
    """Return the content of results.json: samples (one per question asked, failed ones included) in numbers."""
    return {
        "schema_version": 2,
        "run_id": spec.run_id,
        "spec": spec.to_dict(),
        "method": method,
        **summary(spec, samples, num_scheduled),
        "samples_sha256": samples_sha256(samples),
        "pool_sha256": pools_sha256(pools),
        "environment": environment(),
        "timing": {"seconds": round(sum(sample["seconds"] for sample in samples), 3), "finished": finished},
    }


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
    kept = {name: value for name, value in os.environ.items() if name.startswith(("_RULEWORLD", "_RWBENCH"))}

    def part(number: int, total: int) -> None:
        os.environ.update(kept)
        for spec, out in work[number - 1 :: total]:
            run_spec(spec, source, out)

    with Progress("shards") as progress:
        run_on_ray(address, part, len(work), progress.update)


def _ask(method: Method, pools: Sequence[Pool], done: Collection[str], spec: RunSpec) -> Iterator[Sample]:
    """Yield one sample per question that is not done; an exception fails the question in flight, the rest goes on."""
    begun = set(done)
    outputs: Iterator[Output] | None = None
    for question in [question for pool in pools for question in pool.questions if question.id not in begun]:
        if outputs is None:
            outputs = method.run(pools, frozenset(begun), spec.top_k)
        begun.add(question.id)
        start = time.perf_counter()
        try:
            if (output := next(outputs, None)) is None or output.id != question.id:
                raise ValueError(
                    f"the method {'ended' if output is None else f'answered {output.id}'} where {question.id} was due; "
                    "it must yield one output per question, in their order"
                )
        except GoneError:
            raise
        except Exception as error:  # whatever a method raises is this question's failure, and is on record
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            output, outputs = _failure(question, error), None
        try:
            sample = _sample(question, output, spec, method.stepwise, start)
        except Exception as error:  # so is an output that cannot be scored or written down
            sample = _sample(question, _failure(question, error), spec, method.stepwise, start)
        yield sample


def _failure(question: Question, error: Exception) -> Output:
    return Output(question.id, error=f"{type(error).__name__}: {error}"[:MAX_ERROR])


def _sample(question: Question, output: Output, spec: RunSpec, stepwise: bool, start: float) -> Sample:
    """Return a question's sample as it is read back from its line."""
    sample = question.of_sample | {"answers": output.answers, "retrieved": output.retrieved}
    sample |= {
        "output": output.text,
        "scores": score(sample, spec.pool_size, stepwise) if output.error is None else {},
        "outcome": "failed" if output.error is not None else output.outcome,
        "trace": list(output.trace),
        "measures": dict(output.measures),
        "usage": dict(output.usage),
        "seconds": round(time.perf_counter() - start, 6),
        "error": output.error,
        "run_id": spec.run_id,
    }
    return check_sample(from_json(json_line(sample)))
