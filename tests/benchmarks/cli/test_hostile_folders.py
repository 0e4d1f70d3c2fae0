"""Run folders of a stranger: what they name is not asked, what they hold is refused in one line or shown as text."""

import copy
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from rwbench.backends.endpoint import Endpoint
from rwbench.backends.local import Local
from rwbench.cli.app import app
from rwbench.methods import Method, Output, Preview, component
from rwbench.methods.prompting import Prompting
from rwbench.methods.retrieve import Retrieve
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.dense import Dense
from rwbench.retrievers.fuse import RRF
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from rwbench.spec import parts_of
from typer.testing import CliRunner

ESC = "\x1b]0;owned\x07"


def rwbench(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def finished(workspace, tmp_path_factory):
    """Two finished runs: their folder, and what their files hold."""
    from rwbench.recipes import Options

    out = tmp_path_factory.mktemp("runs")
    options = Options(workspace.source, limit=1)
    for size in (100, 200):
        run_spec(options.spec(Retrieve(BM25()), "nl", size, "question"), workspace, out)
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*.js*")}


@pytest.fixture
def runs(finished, tmp_path):
    for path, body in finished.items():
        (tmp_path / "runs" / path.parent).mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / path).write_bytes(body)
    return tmp_path / "runs"


def test_resume_asks_only_an_endpoint_that_is_typed(serve, options, tmp_path, monkeypatch):
    """A stranger's folder would else send the questions and our key to a stranger's server."""
    monkeypatch.setenv("RULEWORLD_API_KEY", "secret")
    server = serve(lambda prompt, nth: "\\boxed{1}")
    spec = options.spec(Prompting(model=Endpoint.of("m", server.url)), "nl", 100, "question")
    folder = tmp_path / "runs" / spec.run_id
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec.to_dict()))
    assert rwbench("resume", tmp_path / "runs", "--dry-run").exit_code == 0 and not server.asked
    for words in ((), ("--endpoint", "https://api.openai.com/v1")):
        refused = rwbench("resume", tmp_path / "runs", *words)
        assert refused.exit_code == 2 and not server.asked
        assert f"type --endpoint {server.url}" in refused.stderr and "RULEWORLD_API_KEY" in refused.stderr
        assert "secret" not in refused.output
    assert rwbench("resume", tmp_path / "runs", "--endpoint", server.url).exit_code == 0
    assert sum(server.asked.values()) == 22 and set(server.keys) == {"Bearer secret"}
    assert rwbench("resume", tmp_path / "runs").exit_code == 0  # nothing left to ask


@pytest.mark.parametrize(
    ("option", "method"),
    [
        ("--model", Prompting(model=Local("/a stranger's"))),
        ("--encoder", Retrieve(RRF((BM25(), Dense("stranger/encoder"))))),
    ],
)
def test_resume_loads_only_files_that_are_typed(option, method, options, tmp_path, monkeypatch):
    """Nor does a dry run, which would count tokens with them; what is shipped needs no words."""
    loaded = []
    monkeypatch.setattr(type(method), "prepare", lambda self, pools: loaded.append(self))
    monkeypatch.setattr(type(method), "preview", lambda self, *rest: loaded.append(self) or Preview())
    monkeypatch.setattr(type(method), "run", lambda self, work, top_k: iter(()))
    spec = options.spec(method, "nl", 100, "question")
    folder = tmp_path / "runs" / spec.run_id
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec.to_dict()))
    for words in ((), ("--dry-run",), (option, "minilm"), (option, "tiny")):
        refused = rwbench("resume", tmp_path / "runs", *words)
        assert refused.exit_code == 2 and not loaded, refused.output
    (typed,) = re.findall(f"type {option} (.*), else", refused.stderr)
    rwbench("resume", tmp_path / "runs", option, *shlex.split(typed))
    assert loaded


def test_parts_of_a_method_are_found_however_deep():
    method = {"a": [{"url": "x"}], "b": {"c": {"url": "y", "d": [[{"url": 1}]]}}}
    assert [part["url"] for part in parts_of(method) if "url" in part] == ["x", "y", 1]


def poke(value, path, new):
    value = copy.deepcopy(value)
    place = value
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = new
    return value


DEEP = "[" * 100_000
HUGE = '{"schema_version": ' + "9" * 5_000 + "}"
FILES = [
    DEEP,
    HUGE,
    "null",
    "[]",
    "7",
    '{"schema_version": null}',
    '{"schema_version": [1]}',
    '"\\ud800"',
    "\xff",
    "",
]


@pytest.mark.parametrize("name", ["results.json", "spec.json", "samples.jsonl", "x.recipe.json"])
@pytest.mark.parametrize("body", FILES, ids=[f"{body[:12]}" for body in FILES])
def test_files_that_are_not_what_their_names_say_are_named(runs, name, body):
    folder = sorted(runs.iterdir())[0] if name != "x.recipe.json" else runs
    (folder / name).write_bytes(body.encode("latin-1") + b"\n" * (name == "samples.jsonl"))
    if name == "results.json":
        (folder / "samples.jsonl").write_bytes(b"")  # so that resume, too, reads it
    commands = {
        "results.json": ("report", "resume", "trace"),
        "spec.json": ("resume",),
        "samples.jsonl": ("report", "resume", "compare"),
        "x.recipe.json": ("report",),
    }[name]
    for command in commands:
        words = sorted(runs.iterdir()) if command == "compare" else [runs]
        result = rwbench(command, *words)
        assert result.exit_code == 2, (command, result.output, result.exception)
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert name in result.stderr


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec",), None),
        (("spec", "pool_size"), 10**300),
        (("spec", "pool_size"), "100"),
        (("spec", "representation"), ["nl"]),
        (("spec", "method"), []),
        (("spec", "data"), None),
        (("spec", "unknown"), 1),
        (("method", "label"), ESC),
        (("method", "label"), "BM25\u202egnihtemos"),
        (("method", "label"), "BM25\u200b"),
        (("n", "scored"), None),
        (("metrics", "recall@1"), None),
        (("metrics", "recall@1", "macro", "value"), None),
        (("metrics", "recall@1", "by_subtask", "single_rule"), 0.5),
        (("details",), []),
        (("usage",), {"calls": 3}),
        (("timing", "seconds"), None),
        (("measures", "rule_entropy"), {"layers": [], "mean": [], "std": [], "n": 1}),
        (("run_id",), "../../etc"),
    ],
)
def test_results_of_other_types_or_ranges_are_refused_in_one_line(runs, path, value):
    file = sorted(runs.glob("*/results.json"))[0]
    file.write_text(json.dumps(poke(json.loads(file.read_text()), path, value)))
    for words in (["report", runs], ["compare", *sorted(runs.iterdir())]):
        result = rwbench(*words)
        assert result.exit_code == 2, (result.output, result.exception)
        assert result.stderr.startswith("error: ") and "results.json" in result.stderr
        assert result.stderr.count("\n") == 1 and "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retrieved", [[10**20]]),
        ("retrieved", [[-1]]),
        ("gold_rules", [[2**31]]),
        ("usage", {"prompt_tokens": 10**400}),
    ],
)
def test_samples_of_other_ranges_are_refused_in_one_line(runs, name, value):
    file = sorted(runs.glob("*/samples.jsonl"))[0]
    first, *rest = file.read_text().splitlines(keepends=True)
    file.write_text(json.dumps(json.loads(first) | {name: value}) + "\n" + "".join(rest))
    result = rwbench("report", runs)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith("error: ") and "samples.jsonl" in result.stderr
    assert result.stderr.count("\n") == 1 and "\x1b" not in result.stderr


def test_text_of_a_stranger_is_shown_as_text(runs):
    file = sorted(runs.glob("*/samples.jsonl"))[0]
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    for sample in samples:
        sample |= {"output": ESC, "answers": [ESC]}
    file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    shown = rwbench("trace", file.parent, "--method", "retrieve", "--subtask", "single_rule")
    assert shown.exit_code == 0, shown.output
    assert "\x1b" not in shown.output and "\\x1b]0;owned\\x07" in shown.output


def test_links_in_a_folder_write_to_no_other_file(runs, tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"")
    samples = sorted(runs.glob("*/samples.jsonl"))[0]
    lines = samples.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(lines[:5]))
    before = target.read_bytes()
    samples.unlink()
    samples.symlink_to(target)
    (samples.parent / ".lock").unlink(missing_ok=True)
    (samples.parent / ".lock").symlink_to(target)
    assert rwbench("resume", runs).exit_code == 0
    assert target.read_bytes() == before and not samples.is_symlink()
    assert len(read_samples(samples)) == 11


@component
class Unwritable(Method):
    """Gives what no file can hold, as a server may."""

    name = "unwritable-of-tests"

    def answer(self, batch, top_k):
        odd = [
            {"text": "half a pair: \ud800"},
            {"usage": {"prompt_tokens": 10**5_000}},
            {"usage": {"cost_usd": float("nan")}},
            {"answers": [3]},
            {"measures": {"rule_entropy": object()}},
            {"error": "\udfff" + "x" * 10_000},
        ]
        for number, (_, question) in enumerate(batch):
            answers = {"answers": list(question.answers)}
            yield Output(question.id, **(answers | (odd[number] if number < len(odd) else {})))


def test_what_cannot_be_written_stops_no_run(options, workspace, tmp_path):
    spec = options.spec(Unwritable(), "nl", 1_000, "batch")
    try:
        results = run_spec(spec, workspace, tmp_path)
        samples = read_samples(tmp_path / spec.run_id / "samples.jsonl")
        again = run_spec(spec, workspace, tmp_path)[
            "n"
        ]  # the five failed ones, the first of them well this time
    finally:
        Method.registry.remove("unwritable-of-tests")
    assert again == {"scheduled": 22, "scored": 18, "failed": 4}
    assert results["n"] == {"scheduled": 22, "scored": 17, "failed": 5}
    assert samples[0]["output"] == "half a pair: ?" and samples[0]["outcome"] == "ok"
    assert [sample["outcome"] for sample in samples[1:6]] == ["failed"] * 5
    assert all(len(sample["error"]) <= 10_001 for sample in samples[1:6])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("list",), ("compare", "{0}", "{1}", "--json")])
def test_a_full_disk_under_stdout_is_one_line(runs, words):
    names = [str(path) for path in sorted(runs.iterdir())]
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "rwbench", *(word.format(*names) for word in words)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: the disk is full\n")
