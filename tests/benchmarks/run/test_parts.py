"""Runs by several machines: the same results in any order; what is there is not asked again."""

import json

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import recipe, recipes
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random

from ..command import rwbench


def some(cell):
    """A few runs that ask no model."""
    return [Solver(), Retrieve(BM25(tokenizer="naive")), Retrieve(Random())]


def command(out, *words):
    rwbench("run", "tests/parts", "--scale", "tiny", "--limit", 1, "--out", out, *words, code=0)


def results(out):
    """Return what counts of each run: not when it was made, and how long it took."""
    found = {}
    for path in out.glob("*/results.json"):
        values = json.loads(path.read_text())
        found[path.parent.name] = {k: v for k, v in values.items() if k not in ("timing", "environment")}
    return found


@pytest.fixture(scope="module", autouse=True)
def small_recipe():
    recipe("tests/parts", (100,))(some)
    yield
    recipes.remove("tests/parts")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    command(out)
    return results(out)


def test_parts_in_any_order_end_with_the_same_results(whole, tmp_path):
    for name in ("retrieve", "solver"):
        command(tmp_path, "--method", name)
    made = {path: path.read_bytes() for path in tmp_path.glob("*/samples.jsonl")}
    command(tmp_path)
    assert results(tmp_path) == whole and len(whole) > 1
    assert {path: path.read_bytes() for path in made} == made  # the last command asks only what is missing


def test_tasks_of_a_cluster_run_in_folders_of_their_own_and_end_with_the_same_results(
    whole, tmp_path, monkeypatch
):
    def elsewhere(address, work, units, progress):
        (tmp_path / "node").mkdir()
        with monkeypatch.context() as node:
            node.chdir(tmp_path / "node")
            for number in range(1, units + 1):
                work(number, units)
                progress(number, units)

    monkeypatch.setattr("ruleworld_data.io.run_on_ray", elsewhere)
    monkeypatch.chdir(tmp_path)
    command("runs", "--ray", "auto")
    assert results(tmp_path / "runs") == whole and len(whole) > 1
