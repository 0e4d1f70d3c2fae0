"""Run folders of a stranger: what they hold is refused in one line or shown as text, and links write nowhere."""

import json
import shutil

import pytest
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from rwbench.spec import RunSpec

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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec",), None),
        (("metrics", "recall@1", "by_subtask", "single_rule"), 0.5),
        (("details",), []),
        (("timing", "seconds"), None),
        (("run_id",), "../../etc"),
        (("n", "failed"), -1),
        (("schema_version",), 99),
        (("metrics", "recall@1", "macro", "value"), 1.2),
    ],
)
def test_results_of_other_types_or_ranges_are_refused_in_one_line(runs, path, value):
    file = sorted(runs.glob("*/results.json"))[0]
    results = place = json.loads(file.read_text())
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    file.write_text(json.dumps(results))
    for words in (["report", runs], ["compare", *sorted(runs.iterdir())]):
        check_refusal(rwbench(*words), "results.json")


def test_text_of_a_stranger_is_shown_as_text(runs):
    file = sorted(runs.glob("*/results.json"))[0]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"method": {"key": "bm25", "label": ESC}}))
    for words in (["report", runs], ["compare", *sorted(runs.iterdir())]):
        shown = rwbench(*words)
        assert shown.exit_code == 0 and "\x1b" not in shown.output and "\\x1b]0;owned" in shown.output
    file = file.with_name("samples.jsonl")
    odd = [sample | {"output": ESC, "answers": [ESC]} for sample in read_samples(file)]
    file.write_text("".join(json.dumps(sample) + "\n" for sample in odd))
    shown = rwbench("trace", file.parent, "--method", "retrieve", "--subtask", "single_rule", code=0)
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
