"""Run folders of a stranger: what they hold is refused in one line or shown as text, and links write nowhere."""

import json
import shutil
from pathlib import Path

import pytest
from rwbench.run.runner import run_spec
from rwbench.score.packed import write_packed
from rwbench.score.results import find_results, find_samples
from rwbench.score.samples import read_samples
from rwbench.spec import RunSpec, json_line

from ..command import rwbench

ESC = "\x1b]0;owned\x07"


@pytest.fixture
def runs(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "runs")


FILES = {
    "deep": "[" * 100_000,
    "huge": '{"schema_version": ' + "9" * 5_000 + "}",
    "null": "null",
    "no UTF-8": "\xff",
}


@pytest.mark.parametrize("name", ["results.json", "samples.jsonl"])
@pytest.mark.parametrize("body", FILES.values(), ids=FILES)
def test_files_that_are_not_what_their_names_say_are_named(runs, name, body):
    folder = sorted(runs.iterdir())[0]
    (folder / name).write_bytes(body.encode("latin-1") + b"\n" * (name == "samples.jsonl"))
    for command in ("report", "trace" if name == "results.json" else "compare"):
        words = sorted(runs.iterdir()) if command == "compare" else [runs]
        check_refusal(rwbench(command, *words), name)


def check_refusal(result, name):
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith("error: ") and name in result.stderr
    assert result.stderr.count("\n") == 1 and "\x1b" not in result.stderr


EDITS = [*map(json.loads, Path(__file__).with_name("edits.jsonl").read_text().splitlines())]
"""A place in results.json and what is written there: of other types or ranges, then what does not follow."""


@pytest.mark.parametrize(
    ("path", "value"), EDITS, ids=[f"{'.'.join(path)} {value!a}" for path, value in EDITS]
)
def test_results_that_were_edited_are_refused_in_one_line(runs, path, value, tmp_path):
    file = sorted(runs.glob("*/results.json"))[0]
    results = place = json.loads(file.read_text())
    packed = [(run, find_samples(runs, run["run_id"])) for run in find_results(runs)]
    for name in path[:-1]:
        place = place[name]
    assert place[path[-1]] != value
    place[path[-1]] = value
    file.write_text(json.dumps(results))
    for words in (["report", runs], ["compare", *sorted(runs.iterdir())]):
        check_refusal(rwbench(*words), "results.json")
    write_packed(tmp_path / "packed", [(results, packed[0][1]), *packed[1:]])
    check_refusal(rwbench("report", tmp_path / "packed", "--markdown"), "")


@pytest.mark.parametrize("part", ["scores", "output"])
def test_samples_that_were_changed_after_the_run_are_refused(runs, part):
    file = sorted(runs.glob("*/samples.jsonl"))[0]
    sample, *others = read_samples(file)
    changed = sample | {part: {**sample["scores"], "recall@1": 0.123} if part == "scores" else "another text"}
    file.write_bytes(b"".join(map(json_line, [changed, *others])))
    check_refusal(rwbench("report", runs), "results.json")
    file.unlink()
    assert f"{file.parent.name} has no samples" in rwbench("report", runs, code=0).stderr


def test_results_that_were_edited_are_made_anew_by_their_recipe(runs, workspace):
    file = sorted(runs.glob("*/results.json"))[0]
    before = json.loads(file.read_text())
    file.write_text(json.dumps(before | {"metrics": {}}))
    after = run_spec(RunSpec.from_dict(before["spec"]), workspace, runs)
    assert after["metrics"] == before["metrics"] != {}


def test_text_of_a_stranger_is_shown_as_text(runs):
    file = sorted(runs.glob("*/results.json"))[0]
    results = json.loads(file.read_text())
    samples = [
        sample | {"output": ESC, "seconds": 0.0} for sample in read_samples(file.with_name("samples.jsonl"))
    ]
    results["spec"]["method"] = {"name": "retrieve-elsewhere"}
    results |= {"method": {"key": "bm25", "label": ESC}, "run_id": RunSpec.from_dict(results["spec"]).run_id}
    folder = file.parent.rename(runs / results["run_id"])
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "samples.jsonl").write_bytes(b"".join(map(json_line, samples)))
    for words in (["report", runs], ["compare", *sorted(runs.iterdir())]):
        shown = rwbench(*words, code=0)
        assert "\x1b" not in shown.output and "\\x1b]0;owned" in shown.output
    words = ["--method", "retrieve-elsewhere", "--subtask", "single_rule"]
    shown = rwbench("trace", folder, *words, code=0)
    assert "\x1b" not in shown.output and "\\x1b]0;owned\\x07" in shown.output


def test_links_in_a_folder_write_to_no_other_file(runs, workspace, tmp_path):
    samples = sorted(runs.glob("*/samples.jsonl"))[0]
    target = tmp_path / "precious"
    target.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:5]))
    before = target.read_bytes()
    lock = samples.parent / ".lock"
    for path in (samples, lock):
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    spec = RunSpec.from_dict(json.loads((samples.parent / "spec.json").read_text()))
    with pytest.raises(ValueError, match=r"is a link to .*precious; .* delete the link"):
        run_spec(spec, workspace, runs)
    assert target.read_bytes() == before
    lock.unlink()
    run = samples.parent.rename(tmp_path / "moved")
    samples.parent.symlink_to(run)
    with pytest.raises(ValueError, match=r"is a link to .*moved"):
        run_spec(spec, workspace, runs)
    samples.parent.unlink()
    run.rename(samples.parent)
    run_spec(spec, workspace, runs)
    assert target.read_bytes() == before and not samples.is_symlink()
    assert len(read_samples(samples)) == 44
