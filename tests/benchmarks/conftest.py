"""A tiny world, generated once, and a folder of caches of the test's own."""

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.data import DataSource
from rwbench.run.runner import run_spec

from .fake_endpoint import FakeEndpoint


@pytest.fixture(scope="module", autouse=True)
def made_once(tables_at_hand):
    """Of the same few tables, these tests would make each hundreds of times."""


@pytest.fixture(autouse=True)
def cache_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("RWBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def workspace():
    return DataSource("tiny")


@pytest.fixture
def options(workspace):
    return Options(workspace, limit=2)


@pytest.fixture
def spec(options):
    """A quick run: 22 questions, BM25, a pool of 100 per question."""
    return options.spec(Retrieve(BM25()), "nl", size=100, scope="question")


@pytest.fixture(scope="session")
def finished(workspace, tmp_path_factory):
    """A folder of runs that no test changes, and their ids: BM25, random rules and the solver, 44 questions each."""
    out, options = tmp_path_factory.mktemp("finished"), Options(workspace, limit=4)
    specs = [options.spec(m, "nl", 100, "question") for m in (Retrieve(BM25()), Retrieve(Random()), Solver())]
    return out, [run_spec(spec, workspace, out)["run_id"] for spec in specs]


@pytest.fixture(scope="session")
def save_model():
    from .tiny_lm import save_model

    return save_model


@pytest.fixture(scope="session")
def model_folder(save_model, workspace, tmp_path_factory):
    """A random model of two layers whose tokenizer knows the words of the tiny world."""
    import torch

    torch.set_num_threads(1)
    words = [
        str(text) for column in ("nl", "fol") for text in workspace.rules("mini").table[column].to_pylist()
    ]
    return save_model(tmp_path_factory.mktemp("model") / "random", words=words)


@pytest.fixture
def serve(monkeypatch):
    """A function that starts a chat server: ``serve(play)``; retries are quick."""
    from openai import _base_client

    for name in ("INITIAL_RETRY_DELAY", "MAX_RETRY_DELAY"):
        monkeypatch.setattr(_base_client, name, 0.001)
    made = []

    def start(play):
        made.append(FakeEndpoint(play))
        return made[-1]

    yield start
    for server in made:
        server.close()
