"""One good submission: BM25 on fifty two-hop questions of the tiny world; its samples in memory, to be spoilt."""

import json
import shutil

import pytest
from rwbench.leaderboard.files import ENTRY, SAMPLES, packed, unpacked
from rwbench.leaderboard.judge import board_spec
from rwbench.leaderboard.submissions import submit
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.folder import finished_run
from rwbench.run.runner import run_spec
from rwbench.spec import canonical_json

DATE = "2026-11-28"
WORDS = {
    "name": "BM25",
    "submitter": "The testers",
    "date": DATE,
    "model": "none",
    "open_weights": "none",
    "trained": "no",
    "description": "Ranks rules by shared words.",
}


class Folder:
    """A submission's folder that a test may spoil."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, name):
        return self.folder / name

    @property
    def words(self):
        return json.loads(self.path(ENTRY).read_text())

    def word(self, name, value):
        self.path(ENTRY).write_text(json.dumps(self.words | {name: value}))

    @property
    def lines(self):
        return [line.decode() for line in unpacked(self.path(SAMPLES).read_bytes())]

    @lines.setter
    def lines(self, lines):
        self.path(SAMPLES).write_bytes(packed("".join(line + "\n" for line in lines).encode()))

    def change_all(self, change):
        records = [json.loads(line) for line in self.lines]
        for record in records:
            change(record)
        self.lines = [canonical_json(record) for record in records]

    def change(self, number, **fields):
        """Change the record on a line (1-based)."""
        name = json.loads(self.lines[number - 1])["id"]
        self.change_all(lambda record: record.update(fields) if record["id"] == name else None)

    def rename(self, name):
        self.folder = self.folder.rename(self.folder.with_name(name))


@pytest.fixture(scope="session")
def small_spec():
    """A function from a method to the spec of a quick run on the board's own setting."""
    return lambda method: board_spec(method.to_dict(), "nl", 100, "tiny", subtasks=("multi_hop_2",))


@pytest.fixture(scope="session")
def runs(workspace, small_spec, tmp_path_factory):
    """Run folders by short name."""
    out = tmp_path_factory.mktemp("runs")
    methods = {"bm25": Retrieve(BM25()), "naive": Retrieve(BM25(tokenizer="naive"))}
    methods |= {"random": Retrieve(Random()), "solver": Solver()}
    return {
        name: out / run_spec(small_spec(method), workspace, out)["run_id"] for name, method in methods.items()
    }


@pytest.fixture(scope="session")
def hand_in():
    """A function that writes the submission of a run folder and returns its folder."""

    def write(run, root, slug="mine", **changes):
        return submit(*finished_run(run), WORDS | changes, root, slug)

    return write


@pytest.fixture(scope="session")
def submissions(runs, hand_in, tmp_path_factory):
    """A folder with four submissions: a ceiling, two contenders, a floor."""
    root = tmp_path_factory.mktemp("board") / "submissions"
    hand_in(runs["bm25"], root, "bm25")
    hand_in(runs["naive"], root, "naive", name="BM25, naive tokens")
    hand_in(runs["random"], root, "random", name="Random rules", kind="floor")
    hand_in(runs["solver"], root, "solver", name="Symbolic solver", kind="ceiling")
    return root


@pytest.fixture
def entry(submissions, tmp_path):
    """A copy of the good submission."""
    folder = tmp_path / "pull" / f"{DATE}_bm25"
    shutil.copytree(submissions / folder.name, folder)
    return Folder(folder)
