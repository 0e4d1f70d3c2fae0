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


def error_counts(runs: Sequence[Results], folder: Path) -> tuple[Counts, list[str]]:
    """Return run id -> error class -> number of samples, and what could not be classified.

    Parameters
    ----------
    runs : sequence of Results
        Those on rule books are left out: their rules have no logic to compare an answer with.
    folder : Path
        Folder of the runs, or one run's.
    """
    counts: Counts = {}
    notes: list[str] = []
    for run in runs:
        spec, label = RunSpec.from_dict(run["spec"]), run["method"]["label"]
        samples = find_samples(folder, run["run_id"])
        if samples is None:
            notes.append(f"{label}: no samples beside its results")
        elif not spec.on_books:
            try:
                classes = Counter(_classes(samples, spec))
                counts[run["run_id"]] = {name: classes[name] for name in ERROR_CLASSES if classes[name]}
            except ValueError as error:
                notes.append(f"{label}: no error classes ({error})")
    return counts, notes


def _classes(samples: Sequence[Sample], spec: RunSpec) -> list[str | None]:
    source, split = source_of(spec), spec.split
    if source.data != spec.data:
        raise ValueError(f"the run used data {spec.data}, here is {source.data}")
    subtasks = {sample["subtask"] for sample in samples}
    questions = {question.id: question for name in subtasks for question in source.questions(name, split)}
    gold = sorted({rule for sample in samples for step in sample["gold_rules"] for rule in step})
    rules = {row["id"]: row for row in source.rules(split).take(gold).to_pylist()}
    known = [sample for sample in samples if sample["id"] in questions]
    diagnoses = [diagnose(sample, questions[sample["id"]].row["steps"], rules) for sample in known]
    return [diagnosis.error if diagnosis else None for diagnosis in diagnoses]
