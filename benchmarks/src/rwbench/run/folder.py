"""Folders of runs: which spec a folder belongs to, and how far it is."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from ..methods import Method
from ..score.results import FILE_NAME, Results, read_results, run_samples
from ..score.samples import SAMPLES_FILE, Sample, samples_sha256
from ..score.scoring import score
from ..score.summarise import summary
from ..spec import RunSpec, spec_differences
from .data import DataSource, select

SPEC_FILE = "spec.json"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process alone; a ValueError if another process holds it."""
    lock = folder / ".lock"
    for path in (folder, lock):
        if path.is_symlink():
            raise ValueError(f"{path} is a link to {path.readlink()}; a run owns its files: delete the link")
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another process is running {folder}; wait for it or stop it") from None
        yield


@dataclass(frozen=True)
class Plan:
    """What running a spec would do."""

    spec: RunSpec
    folder: Path
    scheduled: int
    done: int
    results: Results | None
    """None while it is not finished."""

    @property
    def left(self) -> int:
        """Questions still to be asked."""
        return self.scheduled - self.done

    @property
    def state(self) -> str:
        """``"new"``, ``"resume"`` or ``"finished"``."""
        return "finished" if self.results is not None else "resume" if self.done else "new"


def make_plan(spec: RunSpec, source: DataSource, out: Path) -> Plan:
    """Look at a run's folder without changing it; a ValueError if it belongs to another spec."""
    run_id = spec.run_id
    folder = out / run_id
    _check_spec(folder, spec)
    asked = {
        question.id: question
        for name in spec.subtasks
        for question in select(source.questions(name, spec.split), spec.limit)
    }
    stepwise = Method.from_dict(spec.method).stepwise
    samples: list[Any] = run_samples(folder) or []
    for sample in samples:
        place, question = f"the {SAMPLES_FILE} of {folder} holds", f"question {sample['id']!r:.80}"
        if sample["id"] not in asked or sample.get("run_id", run_id) != run_id:
            raise ValueError(f"{place} another run's answer, to {question}; delete its line")
        true = sample | asked[sample["id"]].of_sample
        if sample["error"] is None and sample != true | {"scores": score(true, spec.pool_size, stepwise)}:
            raise ValueError(f"{place} another gold or score than {question} has; delete its line")
    done = {sample["id"] for sample in samples if sample["error"] is None}
    results, finished = read_results(folder), None
    if results and results["run_id"] == run_id and len(done) == len(asked) == results["n"]["scored"]:
        with suppress(ValueError):
            check_follows(results, samples)
            finished = results
    return Plan(spec, folder, len(asked), len(done), finished)


def finished_run(folder: Path) -> tuple[Results, list[Sample]]:
    """Return results and samples of a run's folder, or of a packed run.

    A FileNotFoundError if it is not finished, a ValueError if they do not follow from each other.
    """
    if (results := read_results(folder)) is None:
        raise FileNotFoundError(f"no finished run at {folder}; give runs/RUN_ID, or finish it: rwbench run")
    samples = run_samples(folder) or []
    check_follows(results, samples)
    return results, samples


def check_follows(results: Results, samples: Sequence[Sample]) -> None:
    """Raise ValueError unless a run's name follows from its spec, its numbers from its samples, and their scores."""
    spec = RunSpec.from_dict(results["spec"])
    scored: list[Any] = [
        {**s, "scores": score(s, spec.pool_size, "step_recall@1" in s["scores"])} if s["error"] is None else s
        for s in samples
    ]
    true: dict[str, Any] = {"run_id": spec.run_id, **summary(spec, scored, len(samples))}
    if any(sample["seconds"] for sample in samples):
        true["samples_sha256"] = samples_sha256(samples)
    else:  # of a packed run some of a sample is left out, such as its measures
        del true["measures"]
    with suppress(ValueError, TypeError):  # of a method that is not here
        method = Method.from_dict(spec.method)
        true["method"] = {"key": method.key, "label": method.label}
    told = {name: value for name, value in results.items() if name in true}
    for field, (theirs, ours) in spec_differences(told, _as_told(true, told)).items():
        raise ValueError(
            f"the {FILE_NAME} of run {results['run_id']} does not follow from its samples: {field} is {theirs!r:.60}, "
            f"where they give {ours!r:.60}; delete it and run the recipe again, which keeps the samples"
        )


def _as_told(true: Any, told: Any) -> Any:
    """Return a JSON value with the numbers of another that are less than two of the last kept decimal off.

    Sums of bootstrap draws have other last bits on other machines.
    """
    if isinstance(true, dict) and isinstance(told, dict):
        return {name: _as_told(part, told.get(name)) for name, part in true.items()}
    near = isinstance(true, float) and isinstance(told, float) and abs(true - told) < 2e-6
    return told if near else true


def _check_spec(folder: Path, spec: RunSpec) -> None:
    path = folder / SPEC_FILE
    if not path.is_file():
        return
    try:
        differences = spec_differences(dict(from_json(path.read_bytes())), spec.to_dict())
    except (ValueError, TypeError):
        raise ValueError(f"{path} is no spec; it is not edited by hand: delete the folder {folder}") from None
    for field, (theirs, ours) in differences.items():
        raise ValueError(
            f"{folder} holds a run of another spec: {field} is {theirs!r} there and {ours!r} here; "
            f"move that folder away, or choose another --out (this run is {spec.run_id})"
        )
