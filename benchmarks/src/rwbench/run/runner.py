"""From a spec to a run folder: ``spec.json``, then ``samples.jsonl`` line by line, then ``results.json``.

Killing the process at any byte costs at most the question in flight: running the same spec again asks only
what is missing and ends with the same results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ruleworld_data.io import Progress, write_whole

from ..backends import GoneError
from ..methods import Method, Output
from ..score.results import Results, read_results, write_results
from ..score.scoring import score
from ..score.summarise import summarise
from ..spec import RunSpec
from .data import Question
from .folder import SPEC_FILE, exclusive, make_plan
from .pools import Pool
from .samples import DISK_FULL, SAMPLES_FILE, Sample, SampleLog, check_sample, read_samples
from .workspace import Workspace


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
            write_whole(folder / SPEC_FILE, json.dumps(spec.to_dict(), indent=2) + "\n")
        pools = workspace.pools(spec)
        method: Method = Method.from_dict(spec.method)
        name = f"{method.label}, {spec.representation.upper()}, {spec.pool_size:,} rules"
        with SampleLog(folder / SAMPLES_FILE) as log:
            if any(question.id not in log.done for pool in pools for question in pool.questions):
                method.prepare(pools)
                for sample in _ask(method, pools, log.done, spec):
                    log.append(sample)
                    if progress is not None:
                        progress.step(failed=sample["error"] is not None, text=name)
        samples = read_samples(folder / SAMPLES_FILE)
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        results = summarise(spec, samples, workspace, num_scheduled=plan.scheduled, finished=finished)
        write_results(folder, results)
        return results


def _ask(method: Method, pools: Sequence[Pool], done: Collection[str], spec: RunSpec) -> Iterator[Sample]:
    """Yield one sample per question that is not done; an exception fails the question in flight, the rest goes on."""
    asked = set(done)
    outputs: Iterator[Output] | None = None
    for question in [question for pool in pools for question in pool.questions if question.id not in asked]:
        if outputs is None:
            left = [(pool, tuple(q for q in pool.questions if q.id not in asked)) for pool in pools]
            outputs = method.run(left, spec.top_k)
        asked.add(question.id)
        start = time.perf_counter()
        scores: dict[str, float] = {}
        try:
            output = _matching(next(outputs, None), question)
            if output.error is None:
                scores = score(output, question, spec.pool_size)
        except GoneError:
            raise
        except Exception as error:  # whatever a method raises is this question's failure, and is on record
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            output, outputs = Output(question.id, error=f"{type(error).__name__}: {error}"), None
        yield _sample(question, output, scores, time.perf_counter() - start)


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
    return check_sample(
        {
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
    )
