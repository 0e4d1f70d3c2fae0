"""What tests of the prose look up: numbers that a page says, and the committed runs that they come from."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from rwbench.report.compare import compare_runs
from rwbench.score.results import find_results, run_samples
from rwbench.score.stats import paired_difference, sample_clusters

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TEXT = (BENCHMARKS / "docs/bundled-models.md").read_text(encoding="utf-8")
SETTINGS = {
    "lookahead": None,
    "score_weight": None,
    "variant": "",
    "kept": None,
    "score_share": 0,
    "score_limit": None,
    "word_weight": None,
    "word_stemmer": None,
    "reworded": None,
}


def said(pattern, page=TEXT):
    """The numbers that a page says where a pattern stands."""
    found = re.search(pattern, " ".join(page.split()))
    assert found is not None, f"the page no longer says {pattern}"
    return [float(number.replace(",", "")) for number in found.groups()]


@cache
def results_in(folder):
    """The runs of a folder of results, read once."""
    return find_results(BENCHMARKS / "results" / folder)


def runs_of(folder, name, form, size=10_000, retriever=None, **fields):
    """The committed runs of a method, by these settings; what else is in `SETTINGS` is as it always is."""
    wanted = SETTINGS | fields
    return [
        run
        for run in results_in(folder)
        if (run["spec"]["representation"], run["spec"]["pool_size"]) == (form, size)
        and (method := run["spec"]["method"])["name"] == name
        and all(method.get(each, SETTINGS.get(each)) == value for each, value in wanted.items())
        and retriever in (None, method.get("retriever", {}).get("name"))
    ]


def run_of(*args, **fields):
    """The one of `runs_of`."""
    (found,) = runs_of(*args, **fields)
    return found


def exact(run, part="macro", key=None):
    """Exact match in %: the macro average, or that of a group of sub-tasks."""
    found = run["metrics"]["exact_match"][part]
    return round(100 * (found if key is None else found[key])["value"], 1)


def lead(folder, run, other, subtask=None):
    """What a run is ahead of another by, in points, and the interval, paired by question."""
    folders = [BENCHMARKS / "results" / folder / each["run_id"] for each in (other, run)]
    (found,) = compare_runs(folders)["comparisons"]
    paired = found["metrics"]["exact_match"]
    difference = paired["difference"] if subtask is None else paired["by_subtask"][subtask]
    return [round(100 * difference[name], 1) for name in ("value", "ci_low", "ci_high")]


def samples_of(folder, run):
    """The samples of a committed run."""
    return run_samples(BENCHMARKS / "results" / folder / run["run_id"])


def ids_of(folder, run):
    """The questions of a run."""
    return {sample["id"] for sample in samples_of(folder, run)}


def mean_difference(folder, runs, other, strict=False, without=frozenset()):
    """What several trainings are ahead of a run by on their mean, paired by question, some left out."""
    *ours, theirs = (
        {each["id"]: each for each in samples_of(folder, run) if each["id"] not in without}
        for run in (*runs, other)
    )
    assert all(each.keys() == theirs.keys() for each in ours)

    def score(sample):
        return float(sample["scores"]["exact_match"] == 1) if strict else sample["scores"]["exact_match"]

    mean = [np.mean([score(each[name]) for each in ours]) for name in theirs]
    samples = list(theirs.values())
    kinds, single = [each["subtask"] for each in samples], [score(each) for each in samples]
    return paired_difference(np.array(single), np.array(mean), kinds, sample_clusters(samples))


def mean_lead(*args, **options):
    """The same in points, and the interval."""
    return [round(100 * each, 1) for each in mean_difference(*args, **options)[:3]]


def _handed(function):
    """A test asks for a function by its name."""
    return pytest.fixture(name=function.__name__)(lambda: function)


_SAID, _RUNS_OF, _RUN_OF, _EXACT, _LEAD = map(_handed, (said, runs_of, run_of, exact, lead))
_MEAN_LEAD, _MEAN_DIFFERENCE, _IDS_OF = map(_handed, (mean_lead, mean_difference, ids_of))
