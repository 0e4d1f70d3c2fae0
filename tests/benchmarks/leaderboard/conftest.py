"""One good submission: BM25 on fifty two-hop questions of the tiny world; its samples in memory, to be spoilt."""

import json

import pyarrow as pa
import pytest
from rwbench.leaderboard.files import METADATA, RESULTS, SAMPLES
from rwbench.leaderboard.judge import Judge, pool_design
from rwbench.leaderboard.metadata import Metadata
from rwbench.leaderboard.submit import submit
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.runner import run_spec
from rwbench.score.samples import packed
from rwbench.spec import RunSpec, canonical_json

DATE = "2026-01-31"
SUBTASKS = ("multi_hop_2",)


class Entry:
    """A submission's folder that a test may spoil."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, name):
        return self.folder / name

    @property
    def results(self):
        return json.loads(self.path(RESULTS).read_text())

    @results.setter
    def results(self, value):
        self.path(RESULTS).write_text(json.dumps(value, indent=2) + "\n")

    @property
    def lines(self):
        stream = pa.CompressedInputStream(pa.BufferReader(self.path(SAMPLES).read_bytes()), "zstd")
        return stream.read().decode().splitlines()

    @lines.setter
    def lines(self, lines):
        self.path(SAMPLES).write_bytes(packed("".join(line + "\n" for line in lines).encode()))

    def change(self, number, change):
        """Change the record on a line (1-based)."""
        lines = self.lines
        record = json.loads(lines[number - 1])
        change(record)
        lines[number - 1] = canonical_json(record)
        self.lines = lines

    def change_all(self, change):
        records = [json.loads(line) for line in self.lines]
        for record in records:
            change(record)
        self.lines = [canonical_json(record) for record in records]

    def word(self, name, value):
        """Replace the line of a field of the metadata, written as it is."""
        path = self.path(METADATA)
        lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{name}:")]
        path.write_text("\n".join([*lines, f"{name}: {value}"]) + "\n")


def words(name="BM25", **changes):
    values = {
        "name": name,
        "submitter": "The testers",
        "date": DATE,
        "model": "none",
        "open_weights": "none",
        "trained": "no",
        "description": "Ranks rules by shared words.",
    }
    return Metadata(**(values | changes))


@pytest.fixture(scope="session")
def judge(workspace):
    made = Judge()
    made._workspaces[workspace.source] = workspace
    return made


@pytest.fixture(scope="session")
def small_spec(workspace):
    """A function from method and representation to the spec of a quick run on the board's own setting."""

    def spec(method, representation="nl", size=100):
        return RunSpec(
            method=method.to_dict(),
            representation=representation,
            data=workspace.source.data,
            scale="tiny",
            subtasks=SUBTASKS,
            **pool_design(size, "tiny"),
        )

    return spec


@pytest.fixture(scope="session")
def runs(workspace, small_spec, tmp_path_factory):
    """Run folders by short name."""
    out = tmp_path_factory.mktemp("runs")
    methods = {
        "bm25": Retrieve(BM25()),
        "naive": Retrieve(BM25(tokenizer="naive")),
        "random": Retrieve(Random()),
        "solver": Solver(),
    }
    return {
        name: out / run_spec(small_spec(method), workspace, out)["run_id"] for name, method in methods.items()
    }


@pytest.fixture(scope="session")
def submissions(runs, judge, tmp_path_factory):
    """A folder with four submissions: a ceiling, two contenders, a floor."""
    root = tmp_path_factory.mktemp("board") / "submissions"
    submit(runs["bm25"], words(), root, judge, "bm25")
    submit(runs["naive"], words("BM25, naive tokens"), root, judge, "naive")
    submit(runs["random"], words("Random rules", kind="floor"), root, judge, "random")
    submit(runs["solver"], words("Symbolic solver", kind="ceiling"), root, judge, "solver")
    return root


@pytest.fixture
def entry(submissions, tmp_path):
    """A copy of the good submission."""
    import shutil

    folder = tmp_path / "pull" / f"{DATE}_bm25"
    shutil.copytree(submissions / folder.name, folder)
    return Entry(folder)
