"""Runs of a tiny world and the committed ones, read once; each test gets copies that it may change."""

import copy
from functools import cache
from pathlib import Path

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.runner import run_spec
from rwbench.score.results import find_results

COMMITTED = Path(__file__).parents[3] / "benchmarks/results"
read_once = cache(find_results)


@pytest.fixture(scope="session")
def made(workspace, tmp_path_factory):
    options = Options(workspace, limit=2)
    out = tmp_path_factory.mktemp("runs")
    return [
        run_spec(options.spec(method, form, size, scope), workspace, out)
        for method in (Retrieve(BM25()), Retrieve(BM25(tokenizer="naive")), Retrieve(Random()), Solver())
        for form in ("fol", "nl")
        for size, scope in ((100, "question"), (1000, "fold"))
    ]


@pytest.fixture
def searches(made):
    """BM25 in two ways and the random floor, four runs each."""
    return copy.deepcopy(made[:12])


@pytest.fixture
def answering(made):
    """Runs of BM25 as if of a method that answers and counts tokens; then the solver's."""
    runs = copy.deepcopy(made[:4] + made[12:])
    for run in runs[:4]:
        run["method"] = {"key": "dynarule", "label": "DynaRule, tiny"}
        run["metrics"]["exact_match"] = copy.deepcopy(made[12]["metrics"]["exact_match"])
        run["metrics"]["exact_match"]["macro"] |= {"value": 0.43, "ci_low": 0.4, "ci_high": 0.5}
        run["usage"] = {"prompt_tokens": {"total": 11, "mean": 900.0}}
    return runs


@pytest.fixture
def committed():
    """A function: the committed runs of a folder of results."""
    return lambda folder: copy.deepcopy(read_once(COMMITTED / folder))
