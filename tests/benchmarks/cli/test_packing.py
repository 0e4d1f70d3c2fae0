"""`rwbench report --pack`: a folder to commit that says all that the runs say."""

import json
import shutil

import pytest
from rwbench.cli.app import app
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.folder import Manifest, make_plan
from rwbench.run.runner import run_spec
from rwbench.score.samples import PACKED_FILE, SAMPLES_FILE
from typer.testing import CliRunner

RECIPE = "paper/table4"


def rwbench(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def made(workspace, tmp_path_factory):
    """Two runs of a recipe of the paper's, and a third that is not of it."""
    options = Options(workspace.source, limit=2)
    out = tmp_path_factory.mktemp("made") / "runs"
    specs = [options.spec(Retrieve(BM25()), form, 1000, "fold") for form in ("fol", "nl")]
    other = options.spec(Retrieve(Random()), "nl", 100, "question")
    for spec in (*specs, other):
        run_spec(spec, workspace, out)
    Manifest(
        recipe=RECIPE, command="rwbench run " + RECIPE, skipped=["a note"], runs=[s.run_id for s in specs]
    ).write(out)
    Manifest(recipe="mine", command="rwbench run mine", skipped=[], runs=[other.run_id]).write(out)
    return specs, out


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def packed(made, tmp_path):
    result = rwbench("report", made[1], "--recipe", RECIPE, "--pack", tmp_path / "packed")
    assert result.exit_code == 0, result.output
    assert "2 runs in" in result.stdout
    return tmp_path / "packed"


def test_it_holds_results_samples_and_the_recipe_and_the_same_bytes_again(made, packed, tmp_path):
    specs, out = made
    files = contents(packed)
    names = {f"{s.run_id}/{name}" for s in specs for name in ("results.json", PACKED_FILE)}
    assert set(files) == {*names, "paper-table4.recipe.json"}
    for spec in specs:
        assert files[f"{spec.run_id}/results.json"] == (out / spec.run_id / "results.json").read_bytes()
    assert rwbench("report", out, "--recipe", RECIPE, "--pack", packed).exit_code == 0
    assert contents(packed) == files
    # From the packed folder too: what is read from it is what was written.
    assert rwbench("report", packed, "--pack", tmp_path / "twice").exit_code == 0
    assert contents(tmp_path / "twice") == files


def test_a_copy_says_what_the_runs_say(made, packed, tmp_path):
    specs, out = made
    for words in (
        ("report", "--recipe", RECIPE, "--markdown"),
        ("trace", "--method", "retrieve", "--form", "nl", "--subtask", "multi_hop_2"),
    ):
        there = rwbench(words[0], out / specs[1].run_id if words[0] == "trace" else out, *words[1:])
        here = rwbench(words[0], packed, *words[1:])
        assert here.exit_code == 0, here.output
        assert here.stdout == there.stdout
    ids = [spec.run_id for spec in specs]
    assert (
        rwbench("compare", *ids, "--out", packed, "--json").stdout
        == rwbench("compare", *ids, "--out", out, "--json").stdout
    )
    assert rwbench("report", packed).exit_code == 0
    page = (packed / "report.html").read_text()
    assert f"no {SAMPLES_FILE}" not in page
    assert all(f"run-{name}" in page for name in ids)
    assert "Beside the paper: table4" in page  # the paper's numbers beside ours


def test_a_packed_run_is_finished_and_can_be_taken_up(made, packed, workspace):
    spec = made[0][0]
    assert make_plan(spec, workspace, packed).finished
    (packed / spec.run_id / "results.json").unlink()
    again = run_spec(spec, workspace, packed)
    wanted = json.loads((made[1] / spec.run_id / "results.json").read_bytes())
    assert again["samples_sha256"] == wanted["samples_sha256"]
    assert again["timing"]["seconds"] == wanted["timing"]["seconds"]  # nothing was asked again


def test_samples_that_are_not_the_results_are_refused(made, tmp_path):
    out = tmp_path / "runs"
    shutil.copytree(made[1], out)
    folder = out / made[0][0].run_id
    samples = folder / SAMPLES_FILE
    samples.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:3]))
    result = rwbench("report", out, "--pack", tmp_path / "packed")
    assert result.exit_code == 2
    assert f"run {folder.name} (22 scored, 3 here)" in result.stderr and "rwbench resume" in result.stderr
    samples.unlink()
    assert "no samples beside" in rwbench("report", out, "--pack", tmp_path / "packed").stderr
    assert not (tmp_path / "packed").exists()


def test_a_place_among_the_runs_is_refused(made):
    """A report of the folder would find every run twice."""
    out = made[1]
    result = rwbench("report", out, "--pack", out / "deep" / "packed")
    assert result.exit_code == 2 and "count every run twice; choose a folder outside" in result.stderr
    assert not (out / "deep").exists()


def test_other_runs_in_the_folder_and_torn_bytes_are_named(made, packed):
    result = rwbench("report", made[1], "--recipe", "mine", "--pack", packed)
    assert result.exit_code == 2
    assert "holds 2 runs that are not among these" in result.stderr
    path = packed / made[0][0].run_id / PACKED_FILE
    path.write_bytes(path.read_bytes()[:-40])
    result = rwbench("report", packed)
    assert result.exit_code == 2
    assert PACKED_FILE in result.stderr and "--pack FOLDER" in result.stderr
