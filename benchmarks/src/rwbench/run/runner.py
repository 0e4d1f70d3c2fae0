"""From a spec to a run folder: ``spec.json``, then ``samples.jsonl`` line by line, then ``results.json``.

Killing the process at any byte costs at most the question in flight: running the same spec again asks only
what is missing and ends with the same results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole
from ruleworld_data.spec import SUBTASKS

from ..backends import GoneError
from ..methods import Method, Output, Work
from ..score.results import Results, read_results, write_results
from ..score.scoring import score
from ..score.summarise import summarise
from ..spec import RunSpec, canonical_json, spec_differences
from .data import DataSource, Question, RuleTable, select
from .pools import Pool, build_pools, pools_sha256
from .progress import Progress
from .samples import (
    DISK_FULL,
    SAMPLES_FILE,
    Sample,
    SampleLog,
    check_sample,
    exclusive,
    read_samples,
    samples_sha256,
)

KEPT_DESIGNS = 8
SPEC_FILE = "spec.json"


class Workspace:
    """Questions and rules of one source, loaded once and shared by all runs of a process."""

    def __init__(self, source: DataSource) -> None:
        self.source = source
        self._questions: dict[tuple[str, str], list[Question]] = {}
        self._rules: dict[bool, RuleTable] = {}
        self._pools: dict[str, list[Pool]] = {}

    def questions(self, subtask: str, split: str) -> list[Question]:
        """Return all questions of one sub-task and split."""
        if (subtask, split) not in self._questions:
            self._questions[subtask, split] = self.source.questions(subtask, split)
        return self._questions[subtask, split]

    def rules(self, split: str) -> RuleTable:
        """Return the rules of the world that the split asks about."""
        heldout = split == "heldout"
        if heldout not in self._rules:
            self._rules[heldout] = self.source.rules(split)
        return self._rules[heldout]

    def pools(self, spec: RunSpec) -> list[Pool]:
        """Return the pools of a run; a ValueError if the spec belongs to other data.

        Methods that are compared share their pools, so the last few designs are kept.
        """
        design = canonical_json({**spec.to_dict(), "method": None})
        if design not in self._pools:
            while len(self._pools) >= KEPT_DESIGNS:
                self._pools.pop(next(iter(self._pools)))
            self._pools[design] = self._build_pools(spec)
        return self._pools[design]

    def _build_pools(self, spec: RunSpec) -> list[Pool]:
        for name, ours in (
            ("scale", self.source.scale),
            ("world_seed", self.source.seed),
            ("data", self.source.version),
        ):
            if getattr(spec, name) != ours:
                raise ValueError(
                    f"run {spec.run_id} asks for {name}={getattr(spec, name)!r}, this source has {ours!r}; "
                    "point --data at the right build, or make the spec anew"
                )
        # A pool of one question needs only the sub-tasks asked; a shared pool holds the gold rules of all.
        alone = spec.pool_scope == "question" and spec.pool_within is None
        names = spec.subtasks if alone else SUBTASKS
        split = {name: self.questions(name, spec.split) for name in names}
        return list(build_pools(spec, split, self.rules(spec.split)))


@dataclass(frozen=True)
class Plan:
    """What running a spec would do."""

    spec: RunSpec
    folder: Path
    scheduled: int
    done: int
    finished: bool

    @property
    def state(self) -> str:
        """``"new"``, ``"resume"`` or ``"finished"``."""
        return "finished" if self.finished else "resume" if self.done else "new"


def make_plan(spec: RunSpec, workspace: Workspace, out: Path) -> Plan:
    """Look at a run's folder without changing it.

    Raises
    ------
    ValueError
        If the folder belongs to another spec.
    """
    folder = out / spec.run_id
    _check_spec(folder, spec)
    asked = [select(workspace.questions(name, spec.split), spec.limit) for name in spec.subtasks]
    ids = {question.id for questions in asked for question in questions}
    samples = read_samples(folder / SAMPLES_FILE)
    done = ids & {sample["id"] for sample in samples if sample["error"] is None}
    results = read_results(folder)
    finished = (
        results is not None
        and len(done) == len(ids) == results["n"]["scored"]
        and results["samples_sha256"] == samples_sha256(samples)
    )
    return Plan(spec, folder, len(ids), len(done), finished)


def run_spec(spec: RunSpec, workspace: Workspace, out: Path, progress: Progress | None = None) -> Results:
    """Run a spec to its end, taking up whatever an earlier attempt left.

    Parameters
    ----------
    spec : RunSpec
    workspace : Workspace
    out : Path
        Folder of run folders; made if missing.
    progress : Progress, optional
        Told of every sample.

    Returns
    -------
    dict
        The content of results.json.

    Raises
    ------
    ValueError
        If the folder belongs to another spec, another process holds it, or the spec does not fit the data.
    GoneError
        If the model cannot be used any more; finished samples are kept.
    OSError
        If the disk is full; finished samples are kept.
    """
    folder = out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        plan = make_plan(spec, workspace, out)
        if plan.finished and (results := read_results(folder)) is not None:
            return results
        if not (folder / SPEC_FILE).is_file():
            write_whole(folder / SPEC_FILE, (json.dumps(spec.to_dict(), indent=2) + "\n").encode())
        pools = workspace.pools(spec)
        method: Method = Method.from_dict(spec.method)
        with SampleLog(folder / SAMPLES_FILE) as log:
            if any(question.id not in log.done for pool in pools for question in pool.questions):
                method.prepare(pools)
                for sample in _ask(method, pools, frozenset(log.done), spec):
                    log.append(sample)
                    if progress is not None:
                        progress.step(failed=sample["error"] is not None, text=_name(spec, method))
        samples = read_samples(folder / SAMPLES_FILE)
        timing = {
            "seconds": round(sum(sample["seconds"] for sample in samples), 3),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        gold = {rule for sample in samples for step in sample["gold_rules"] for rule in step}
        types = workspace.rules(spec.split).types(gold)
        results = summarise(spec, samples, plan.scheduled, pools_sha256(pools), timing, types)
        write_results(folder, results)
        return results


def _ask(method: Method, pools: Sequence[Pool], done: Container[str], spec: RunSpec) -> Iterator[Sample]:
    """Yield one sample per question that is not done; an exception fails the question in flight, the rest goes on."""
    work: list[Work] = [(pool, tuple(q for q in pool.questions if q.id not in done)) for pool in pools]
    asked: set[str] = set()
    broken = True
    while broken:
        broken = False
        # A method gets a list of its own: it may read it lazily while samples are written.
        left = [(pool, tuple(q for q in questions if q.id not in asked)) for pool, questions in work]
        outputs = method.run(left, spec.top_k)
        for question in [question for _, questions in left for question in questions]:
            asked.add(question.id)
            start = time.perf_counter()
            try:
                output = _matching(next(outputs, None), question)
                scores = {} if output.error is not None else score(output, question, spec.pool_size)
            except GoneError:
                raise
            except (
                Exception
            ) as error:  # whatever a method raises is this question's failure, and is on record
                if isinstance(error, OSError) and error.errno in DISK_FULL:
                    raise
                output = Output(question.id, error=f"{type(error).__name__}: {error}")
                scores, broken = {}, True
            yield _sample(question, output, scores, time.perf_counter() - start)
            if broken:
                break


def find_specs(folder: Path) -> list[tuple[RunSpec, Path]]:
    """Return the specs of all runs below a folder, each with the folder that its run folder is in.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If one cannot be read, or does not belong to the folder that it is in.
    """
    found = []
    for path in sorted(folder.glob(f"**/{SPEC_FILE}")):
        try:
            spec = RunSpec.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path} is no spec of a run ({error}); delete the folder {path.parent}"
            ) from None
        if spec.run_id != path.parent.name:
            raise ValueError(
                f"{path} is the spec of run {spec.run_id}, but its folder is called {path.parent.name}: one of them "
                "was changed; delete the folder, or give it its name back"
            )
        found.append((spec, path.parent.parent))
    if not found:
        raise FileNotFoundError(f"no {SPEC_FILE} below {folder}; start a run first: rwbench run smoke")
    return found


def _matching(output: Output | None, question: Question) -> Output:
    if output is None:
        raise ValueError(
            f"the method ended before question {question.id}; it must yield one output per question"
        )
    if output.id != question.id:
        raise ValueError(
            f"the method answered {output.id} where {question.id} was due; outputs come in the order of the questions"
        )
    return output


def _sample(question: Question, output: Output, scores: dict[str, float], seconds: float) -> Sample:
    sample = {
        "id": question.id,
        "subtask": question.subtask,
        "world_id": question.world_id,
        "fold": question.fold,
        "output": output.text,
        "answers": output.answers,
        "gold_answers": list(question.answers),
        "retrieved": output.retrieved,
        "gold_rules": [list(step) for step in question.gold_steps],
        "scores": scores,
        "outcome": "failed" if output.error is not None else output.outcome,
        "trace": [step.to_dict() for step in output.trace],
        "measures": dict(output.measures),
        "usage": dict(output.usage),
        "seconds": round(seconds, 6),
        "error": output.error,
    }
    return check_sample(sample)


def _check_spec(folder: Path, spec: RunSpec) -> None:
    path = folder / SPEC_FILE
    if not path.is_file():
        return
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(
            f"{path} is not JSON; it is never edited by hand: delete the folder {folder}"
        ) from None
    for field, (theirs, ours) in spec_differences(stored, spec.to_dict()).items():
        raise ValueError(
            f"{folder} holds a run of another spec: {field} is {theirs!r} there and {ours!r} here; "
            f"move that folder away, or choose another --out (this run is {spec.run_id})"
        )


def _name(spec: RunSpec, method: Method) -> str:
    return f"{method.label}, {spec.representation.upper()}, {spec.pool_size:,} rules"
