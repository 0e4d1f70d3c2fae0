"""`rwbench trace`: one question of a finished run, step by step: what was found, what was written, what was right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import RunsFolder, checked_results, printable

if TYPE_CHECKING:
    from ..run.data import RuleTable
    from ..score.results import Results
    from ..score.samples import Sample


def trace(
    folder: RunsFolder,
    method: Annotated[str, typer.Option(help="Method, as `rwbench list` names it.")] = "dynarule",
    size: Annotated[int | None, typer.Option(help="Rules in the pool.", show_default="most in DIR")] = None,
    form: Annotated[str, typer.Option(help="nl or fol.")] = "nl",
    subtask: Annotated[str, typer.Option(help="Sub-task of the question.")] = "multi_hop_3",
    question: Annotated[str | None, typer.Option(help="Its id.", show_default="the first")] = None,
    top: Annotated[int, typer.Option(min=1, help="Rules shown per search; gold ones always are.")] = 3,
    data: Annotated[Path | None, typer.Option(help="The folder of a rule book of your own.")] = None,
) -> None:
    """Show one question of a run: each search with its gold rules marked, each step as written, the answer.

    Example: rwbench trace runs --subtask multi_hop_3
    """
    from ..run.books import BookSource, source_of
    from ..spec import RunSpec

    run = _find_run(checked_results(folder), folder, method, size, form)
    sample = _find_sample(run, folder, subtask, question)
    spec = run["spec"]
    source = source_of(RunSpec.from_dict(spec)) if data is None else BookSource.open(data)
    questions = {q.id: q.text for q in source.questions(sample["subtask"], spec["split"])}
    steps = _steps(sample, source.rules(spec["split"]), form, top)
    lines = [f"{run['method']['label']}, {spec['pool_size']:,} rules, {form.upper()}, split {spec['split']}"]
    lines += [sample["id"], "", questions.get(sample["id"], ""), "", *steps]
    right = sample["scores"].get("exact_match") == 1
    verdict = "right" if right else f"wrong, gold {', '.join(sample['gold_answers'])}"
    lines += ["", f"answer: {', '.join(sample['answers'] or ['none'])} ({verdict})"]
    typer.echo(printable("\n".join(lines)))


def _steps(sample: Sample, rules: RuleTable, form: str, top: int) -> Iterator[str]:
    """Yield, for each search, the best rules and its step's gold ones, those that it missed, and what was written."""
    from ..score.packed import UNKNOWN_RULE

    written = [step["text"] for step in sample.get("trace", [])] or [sample["output"]]
    stepwise = "step_recall@1" in sample["scores"]  # else a search is not one step's, however many there were
    for number, (ranked, text) in enumerate(zip_longest(sample["retrieved"] or [], written)):
        gold_steps = sample["gold_rules"][number : number + 1] if stepwise else sample["gold_rules"]
        gold = {rule for step in gold_steps for rule in step}
        ids = sorted({*(ranked or ()), *gold} - {UNKNOWN_RULE})
        texts = dict(zip(ids, rules.texts(ids, form), strict=True)) if ids else {}
        for place, rule in enumerate(ranked or (), 1):
            if rule != UNKNOWN_RULE and (place <= top or rule in gold):
                yield f"  {place:>6,}. {'gold' if rule in gold else '    '}  {texts[rule]}"
        if ranked and (missed := [texts[rule] for rule in sorted(gold - {*ranked})]):
            yield f"       not found: {'; '.join(missed)}"
        if text and text.strip():
            yield text.strip()


def _find_run(results: list[Results], folder: Path, method: str, size: int | None, form: str) -> Results:
    """Return the run on the most rules; a method as it is has a shorter label than with something left out."""
    fitting = [
        run
        for run in results
        if (run["spec"]["method"]["name"], run["spec"]["representation"]) == (method, form)
        and size in (None, run["spec"]["pool_size"])
    ]
    if not fitting:
        specs = [run["spec"] for run in results]
        there = {f"{s['method']['name']} {s['representation']} {s['pool_size']}" for s in specs}
        raise ValueError(
            f"no run of {method!r} with {size or 'any number of'} rules in {form!r} below {folder}; there are: "
            f"{', '.join(sorted(there)) or f'none; make some: rwbench run arena --out {folder}'}"
        )
    return min(fitting, key=lambda run: (-run["spec"]["pool_size"], len(run["method"]["label"])))


def _find_sample(run: Results, folder: Path, subtask: str, question: str | None) -> Sample:
    from ..score.results import find_samples

    samples = find_samples(folder, run["run_id"])
    if samples is None:
        raise FileNotFoundError(f"run {run['run_id']} has no samples beside its results; run it again")
    for sample in samples:
        if sample["subtask"] == subtask if question is None else sample["id"] == question:
            return sample
    there = sorted({sample["subtask"] for sample in samples})
    raise ValueError(
        f"run {run['run_id']} has no question {question or 'of ' + subtask}; its sub-tasks: {', '.join(there)}"
    )
