"""How often answers go wrong in which way: error classes of the samples of runs (`score.errors`)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..run.books import source_of
from ..score.errors import ERROR_CLASSES, diagnose
from ..score.results import Results, find_samples
from ..score.samples import Sample
from ..spec import RunSpec

Counts = dict[str, dict[str, int]]


def error_counts(runs: Sequence[Results], folder: Path) -> Counts:
    """Return run id -> error class -> number of samples.

    Runs on rule books are left out: their rules have no logic to compare an answer with.
    """
    counts: Counts = {}
    for run in runs:
        spec, samples = RunSpec.from_dict(run["spec"]), find_samples(folder, run["run_id"])
        if samples is not None and not spec.on_books:
            classes = Counter(_classes(samples, spec))
            counts[run["run_id"]] = {name: classes[name] for name in ERROR_CLASSES if classes[name]}
    return counts


def _classes(samples: Sequence[Sample], spec: RunSpec) -> list[str | None]:
    source, split = source_of(spec), spec.split
    subtasks = {sample["subtask"] for sample in samples}
    questions = {question.id: question for name in subtasks for question in source.questions(name, split)}
    gold = sorted({rule for sample in samples for step in sample["gold_rules"] for rule in step})
    rules = {row["id"]: row for row in source.rules(split).take(gold).to_pylist()}
    known = [sample for sample in samples if sample["id"] in questions]
    diagnoses = [diagnose(sample, questions[sample["id"]].row["steps"], rules) for sample in known]
    return [diagnosis.error if diagnosis else None for diagnosis in diagnoses]
