"""Rewording by a language model, played by a function in place of the client's call that answers well, badly or not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import diskcache
import httpx2
import openai
import pyarrow.parquet as pq
import pytest
from openai.resources.chat.completions import Completions
from ruleworld_data.cli import app
from ruleworld_data.generate import question_table
from ruleworld_data.io.builds import FORMAT, MANIFEST
from ruleworld_data.io.schema import QUESTION_SCHEMA
from ruleworld_data.merge import MergeResult, merge_split, reword, sub_questions
from typer.testing import CliRunner

URL = "http://127.0.0.1:1/v1"


class Model:
    """A model: ``play`` makes of the sub-questions and how often they were asked a text, or the status of an error."""

    def __init__(self) -> None:
        self.play = good
        self.lock, self.asked, self.requests = Lock(), Counter(), []

    def create(self, completions, **request):
        text = request["messages"][-1]["content"].split("Sub-questions:\n")[1]
        parts = tuple(line[2:] for line in text.splitlines() if line.startswith("- "))
        with self.lock:
            self.asked[parts] += 1
            self.requests.append(request)
        answer = self.play(parts)
        if isinstance(answer, int):
            response = httpx2.Response(answer, request=httpx2.Request("POST", URL))
            raise openai.APIStatusError("no", response=response, body={"error": "so said the server"})
        message = SimpleNamespace(content=answer)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=None)


def good(parts) -> str:
    return f"These cases are unrelated: first tell {'; then tell '.join(parts)}."


@pytest.fixture
def model(monkeypatch):
    monkeypatch.delenv("RULEWORLD_API_KEY", raising=False)
    model = Model()
    monkeypatch.setattr(Completions, "create", lambda self, **request: model.create(self, **request))
    return model


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    """A build with one split of one sub-task, in two shards."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "multi_rule_3").mkdir()
    shards = []
    for i, (start, stop) in enumerate(((0, 9), (9, 20))):
        path = f"multi_rule_3/validation-{i:05d}-of-00002.parquet"
        pq.write_table(question_table("multi_rule_3", "validation", "tiny", 0, start, stop), folder / path)
        shards.append({"path": path, "config": "multi_rule_3", "split": "validation", "rows": stop - start})
    (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, "shards": shards}))
    return folder


@pytest.fixture(scope="module")
def rows():
    return question_table("multi_rule_3", "validation", "tiny").to_pylist()


def run(build: Path, out: Path, limit: int | None = None, name: str = "qwen", **more) -> MergeResult:
    return merge_split(build, "multi_rule_3", "validation", URL, name, out, limit, **more)


def kept(out: Path) -> int:
    """How many replies are on disk."""
    with diskcache.Cache(f"{out}.replies") as cache:
        return len(cache)


def test_every_way_to_answer(model, build, rows, tmp_path):
    parts = [tuple(sub_questions(row["question"])) for row in rows]
    plays = {
        1: lambda asked: good(asked[:-1]),
        2: lambda asked: re.sub(r"\d+", lambda number: str(int(number[0]) + 1), good(asked), count=1),
        3: lambda asked: good(asked[::-1]),
        4: lambda asked: "asdf \u2603",
        5: lambda asked: "",
        9: lambda asked: f"<think>\nThe user wants 3 parts.\n</think>\n\n{good(asked)}\n",
        12: lambda asked: 500,
        16: lambda asked: 400,
    }
    refused, failed = {1, 2, 3, 4, 5}, {12, 16}
    model.play = lambda asked: {parts[i]: play for i, play in plays.items()}.get(asked, good)(asked)
    seen: list[tuple[int, int]] = []
    out = tmp_path / "deep" / "reworded.parquet"
    result = run(build, out, progress=lambda done, total: seen.append((done, total)))
    assert result == MergeResult(reworded=13, kept=7, refused=5, failed=2)
    assert seen == [(done, 20) for done in range(1, 21)]
    table = pq.read_table(out)
    assert table.schema.equals(QUESTION_SCHEMA)
    for i, (old, new) in enumerate(zip(rows, table.to_pylist(), strict=True)):
        changed = {} if i in refused | failed else {"question": good(parts[i]), "template_id": "llm:qwen"}
        assert new == old | changed
    assert set(model.asked.values()) == {1}
    assert all(request["temperature"] == 0 and request["model"] == "qwen" for request in model.requests)

    # A second run asks only what has no answer yet; here all of it is answered now.
    model.play = good
    model.asked.clear()
    again = run(build, out)
    assert set(model.asked) == {parts[i] for i in failed} and again == MergeResult(15, 5, 5, 0)
    # And then nothing is asked: the same bytes.
    data, asked = out.read_bytes(), model.asked.total()
    assert run(build, out) == again and out.read_bytes() == data and model.asked.total() == asked
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name, out.name + ".replies"]
    # Another model is asked anew; of the first rows only.
    run(build, out, 2, "other")
    assert pq.read_table(out)["template_id"].to_pylist() == ["llm:other"] * 2
    assert model.asked.total() == asked + 2


KILLED = """
import runpy, sys, threading
from openai.resources.chat.completions import Completions
tests = runpy.run_path(sys.argv[1])
model, gate = tests["Model"](), threading.Semaphore(6)
def play(parts):
    gate.acquire()  # six are answered
    return tests["good"](parts)
model.play = play
Completions.create = lambda self, **request: model.create(self, **request)
tests["run"](*map(tests["Path"], sys.argv[2:]))
"""


def test_a_killed_run_asks_no_question_twice(model, build, tmp_path):
    out = tmp_path / "out.parquet"
    process = subprocess.Popen([sys.executable, "-c", KILLED, __file__, str(build), str(out)])
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and kept(out) < 6:
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert kept(out) == 6 and not out.exists()
    assert run(build, out) == MergeResult(20, 0, 0, 0)
    assert model.asked.total() == 14 and kept(out) == 20


def test_an_endpoint_that_cannot_work_or_stops_ends_the_run(model, build, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    for status in (401, 302):
        model.asked.clear()
        model.play = lambda parts, status=status: status
        with pytest.raises(
            ValueError, match=rf"does not answer: 1 of 1 .*HTTP {status} .*so said.*Check .*--endpoint"
        ):
            run(build, out)
        assert model.asked.total() == 1
    model.asked.clear()
    model.play = lambda parts: good(parts) if model.asked.total() <= 3 else 503
    monkeypatch.setattr(reword, "FAILURES_IN_A_ROW", 4)
    monkeypatch.setattr(reword, "THREADS", 1)
    stopped = r"does not answer: 4 of \d .*HTTP 503.*the same command again"
    with pytest.raises(ValueError, match=stopped):
        run(build, out)
    assert kept(out) == 3
    model.play = lambda parts: 500
    with pytest.raises(ValueError, match=r"2 of 2 questions failed.*HTTP 500"):
        run(build, tmp_path / "other.parquet", 2)
    assert not list(tmp_path.glob("*.parquet"))
    monkeypatch.undo()
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with pytest.raises(ValueError, match=r"does not answer: .*cannot connect: .*refused"):
        run(build, out)  # nobody listens there


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subtask": "multi_hop_3"}, r"nothing to merge; type one of: --subtask multi_rule_2,"),
        ({"split": "tset"}, r"unknown split 'tset'; did you mean 'test'"),
        ({"split": "train"}, r"holds no train questions of multi_rule_3"),
        ({"model": " "}, r"the model has no name; type .*--model"),
        ({"endpoint": "localhost:8000"}, r"'localhost:8000' is no web address; type .*--endpoint http"),
        ({"endpoint": "http://host/v1/chat/completions"}, r"type: --endpoint http://host/v1$"),
        ({"endpoint": "http://me:secret@host/v1"}, r"RULEWORLD_API_KEY"),
        ({"out": "out.txt"}, r"must be a parquet file, got .*out\.txt; type e\.g\. --out"),
        ({"folder": "worded"}, r"has words=0\.5, and only wordings of words=0 can be checked"),
        ({"folder": "nowhere"}, r"no build; make one with: ruleworld build"),
    ],
)
def test_wrong_arguments_are_named(build, tmp_path, change, message):
    arguments = {"folder": build, "subtask": "multi_rule_3", "split": "validation", "endpoint": URL}
    arguments |= {"model": "qwen", "out": "out.parquet", "limit": None} | change
    arguments["out"] = tmp_path / str(arguments["out"])
    if change.get("folder") == "worded":
        arguments["folder"] = shutil.copytree(build, tmp_path / "worded")
        manifest = json.loads((build / MANIFEST).read_text()) | {"dials": {"words": 0.5}}
        (tmp_path / "worded" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        merge_split(**arguments)
    assert "secret" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"worded"}


def test_the_shards_of_a_build_are_not_overwritten(build):
    shard = sorted(build.glob("*/*.parquet"))[0]
    data = shard.read_bytes()
    with pytest.raises(ValueError, match="among the shards"):
        run(build, shard)
    assert shard.read_bytes() == data


def test_the_command(model, build, tmp_path):
    options = ["merge", str(build), "--model", "qwen", "--out", str(tmp_path / "out.parquet"), "--limit", "4"]
    options += ["--subtask", "multi_rule_3", "--split", "validation", "--endpoint"]
    result = CliRunner().invoke(app, [*options, URL])
    assert result.exit_code == 0, result.output
    assert "4 reworded, 0 kept as they were (0 refused, 0 without an answer)" in result.output
    result = CliRunner().invoke(app, [*options, "localhost"])
    assert result.exit_code == 2 and "no web address" in result.output and "Traceback" not in result.output
