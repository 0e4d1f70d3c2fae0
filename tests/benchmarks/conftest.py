"""A tiny world, generated once, and a folder of caches of the test's own."""

import pytest
from rwbench.data import DataSource
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.runner import Workspace


@pytest.fixture(autouse=True)
def cache_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("RWBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def workspace():
    return Workspace(DataSource("tiny"))


@pytest.fixture
def options(workspace):
    return Options(workspace.source, limit=2)


@pytest.fixture
def spec(options):
    """A quick run: 22 questions, BM25, a pool of 100 per question."""
    return options.spec(Retrieve(BM25()), "nl", size=100, scope="question")
