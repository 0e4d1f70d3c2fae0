"""Committed runs: every score comes out again from what is kept, and packed runs read like folders of runs."""

import shutil
from pathlib import Path

import pytest
from rwbench.run.runner import run_spec
from rwbench.score.packed import UNKNOWN_RULE, is_packed
from rwbench.score.results import find_results, find_samples, pack, read_results, run_samples
from rwbench.score.summarise import summary
from rwbench.spec import RunSpec

from ..command import rwbench

RESULTS = Path(__file__).parents[3] / "benchmarks/results"
PACKED = sorted(folder.name for folder in RESULTS.iterdir() if is_packed(folder))


def recomputed(run, samples):
    """Everything in a run's results that is computed from what is kept of its samples."""
    spec = RunSpec.from_dict(run["spec"])
    return run | summary(spec, samples, len(samples)) | {"measures": run["measures"]}


def check(run, folder):
    assert recomputed(run, run_samples(folder / run["run_id"])) == run, run["run_id"]


@pytest.mark.parametrize("name", PACKED)
def test_a_committed_run_of_each_folder_comes_out_again(name):
    """That of fewest questions, which takes a second."""
    run = min(find_results(RESULTS / name), key=lambda run: (run["n"]["scored"], run["run_id"]))
    check(run, RESULTS / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKED)
def test_every_committed_score_comes_out_again(name):
    for run in find_results(RESULTS / name):
        check(run, RESULTS / name)


@pytest.fixture(scope="module")
def both(finished, tmp_path_factory):
    """A folder of runs, and the same packed."""
    out, to = finished[0], tmp_path_factory.mktemp("small") / "packed"
    pack(find_results(out), out, to)
    return out, to


def test_a_packed_run_reads_like_its_folder(both):
    out, to = both
    fresh = find_results(out)
    assert find_results(to) == fresh
    for run in fresh:
        place = to / run["run_id"]
        assert read_results(place) == run and find_results(place) == [run]
        samples, packed = run_samples(out / run["run_id"]), run_samples(place)
        assert find_samples(to, run["run_id"]) == find_samples(place, run["run_id"]) == packed
        for sample, kept in zip(samples, packed, strict=True):
            gold = {rule for step in sample["gold_rules"] for rule in step}
            for ranked, ranks in zip(sample["retrieved"], kept["retrieved"], strict=True):
                hidden = [rule if rule in gold else UNKNOWN_RULE for rule in ranked]
                assert hidden[: len(ranks)] == ranks and not gold & set(hidden[len(ranks) :])
            assert kept["scores"] == sample["scores"]
        assert recomputed(run, packed) == run
    assert read_results(to / ("0" * 12)) is None and find_samples(to, "0" * 12) is None


def test_commands_say_of_a_packed_folder_what_they_say_of_the_runs(both):
    out, to = both
    ids = [run["run_id"] for run in find_results(out)]
    for words in (
        ["report", "{}", "--markdown"],
        ["trace", "{}", "--method", "solver", "--form", "nl", "--subtask", "multi_hop_2"],
        ["compare", *(f"{{}}/{name}" for name in ids), "--json"],
    ):
        there, here = (rwbench(*(word.format(folder) for word in words)) for folder in both)
        assert (here.exit_code, here.stdout) == (0, there.stdout), words
    assert rwbench("report", to).exit_code == 0
    page = (to / "report.html").read_text()
    assert all(name in page for name in ids) and "Not shown" not in page
    (to / "report.html").unlink()


def test_a_packed_run_is_finished_and_the_same_runs_give_the_same_bytes(both, workspace, tmp_path):
    out, to = both
    run = find_results(to)[0]
    assert run_spec(RunSpec.from_dict(run["spec"]), workspace, to) == run
    assert not (to / run["run_id"]).exists()
    pack(find_results(out)[::-1], out, tmp_path / "again")
    for path in to.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda out, to: (out, out / "deep" / "packed"), "count every run twice; choose a folder outside"),
        (lambda out, to: cut(out), "does not follow from its samples"),
    ],
)
def test_what_is_not_packed(both, tmp_path, spoil, told):
    shutil.copytree(both[0], tmp_path / "runs")
    folder, to = spoil(tmp_path / "runs", both[1])
    assert told in rwbench("report", folder, "--pack", to, code=2).stderr and not to.exists()


def cut(out):
    """Leave three samples of each run."""
    for path in out.glob("*/samples.jsonl"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    return out, out.parent / "packed"


def test_other_runs_in_the_folder_are_named(both):
    out, to = both
    with pytest.raises(ValueError, match="holds 2 runs that are not among these"):
        pack(find_results(out)[:1], out, to)


def test_a_damaged_file_is_named(both, tmp_path):
    shutil.copytree(both[1], tmp_path / "odd")
    (tmp_path / "odd/results.json").write_text('{"runs": []}')  # of packed runs as they were
    assert find_results(tmp_path / "odd") == find_results(both[1])
    (tmp_path / "odd/results.jsonl.zst").write_text("{}")
    with pytest.raises(ValueError, match=r"odd is no folder of packed runs .* pack them again"):
        find_results(tmp_path / "odd")
