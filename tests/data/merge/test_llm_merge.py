"""Rewording by a language model, played by a server on this machine that answers well, badly, late or not at all."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diskcache
import pyarrow.parquet as pq
import pytest
from ruleworld_data.generate import question_table
from ruleworld_data.io.builds import FORMAT, MANIFEST
from ruleworld_data.io.schema import QUESTION_SCHEMA
from ruleworld_data.merge import MergeResult, merge_split, reword
from ruleworld_data.merge.check import sub_questions
from typer.testing import CliRunner

QUICK = {"timeout": 0.5, "tries": 3}
fake = runpy.run_path(str(Path(__file__).parents[1] / "fake_model.py"))
FakeModel: Any = fake["FakeModel"]
Play = Callable[[list[str], int], "str | int | bytes | None"]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Play], FakeModel]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RULEWORLD_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-others")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    models: list[FakeModel] = []

    def start(play: Play) -> FakeModel:
        models.append(FakeModel(play))
        return models[-1]

    yield start
    for model in models:
        model.close()


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def run(
    build: Path, model: FakeModel | str, out: Path, limit: int | None = None, **more: object
) -> MergeResult:
    url = model if isinstance(model, str) else model.url
    return merge_split(build, "multi_rule_3", "validation", url, "qwen", out, limit, **QUICK | more)  # type: ignore[arg-type]


def good(parts: list[str], nth: int = 0) -> str:
    return f"These cases are unrelated: first tell {'; then tell '.join(parts)}."


def kept(out: Path) -> int:
    """How many replies are on disk."""
    with diskcache.Cache(f"{out}.replies") as cache:
        return len(cache)


def kept_parts(build: Path) -> list[tuple[str, ...]]:
    """The sub-questions of every row, as the prompt lists them."""
    rows = [row for path in sorted(build.glob("*/*.parquet")) for row in pq.read_table(path).to_pylist()]
    return [tuple(sub_questions(row["question"])) for row in rows]


def test_every_way_to_answer(serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path) -> None:
    parts = kept_parts(build)
    reworded = {0: "good", 5: "429", 6: "500 once", 8: "closed once", 9: "thinking"}
    refused = {1: "dropped", 2: "changed", 10: "garbage", 11: "empty"}
    failed = {12: "500", 13: "half", 14: "closed", 15: "slow", 16: "400"}
    plays = {parts[i]: name for i, name in (reworded | refused | failed).items()}

    def play(asked: list[str], nth: int) -> str | int | bytes | None:
        name = plays.get(tuple(asked), "good")
        if name.endswith(" once"):
            name = "good" if nth > 1 else name.removesuffix(" once")
        text = good(asked)
        match name:
            case "429":
                return 429 if nth == 1 else text
            case "500" | "400":
                return int(name)
            case "half":
                return b'{"choices": [{"message": {"content": "These ca'
            case "closed":
                return None
            case "slow":
                model.release.wait(5)
                return text
            case "thinking":
                return f"<think>\nThe user wants 3 parts.\n</think>\n\n{text}\n"
            case "dropped":
                return good(asked[:-1])
            case "changed":
                return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), text, count=1)
            case "garbage":
                return "asdf \u2603"
            case "empty":
                return ""
        return text

    model = serve(play)
    seen: list[tuple[int, int]] = []
    out = tmp_path / "deep" / "reworded.parquet"
    result = run(build, model, out, progress=lambda done, total: seen.append((done, total)))
    assert result == MergeResult(
        reworded=20 - len(refused) - len(failed),
        kept=len(refused) + len(failed),
        refused=len(refused),
        failed=len(failed),
    )
    assert [total for _, total in seen] == [20] * len(seen)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (20, 20)

    table = pq.read_table(out)
    assert table.schema.equals(QUESTION_SCHEMA)
    before = question_table("multi_rule_3", "validation", "tiny").to_pylist()
    for i, (old, new) in enumerate(zip(before, table.to_pylist(), strict=True)):
        if i in refused or i in failed:
            assert new == old
        else:
            assert new == old | {"question": good(list(parts[i])), "template_id": "llm:qwen"}

    tries = {name: model.asked[asked] for asked, name in plays.items()}
    assert {tries[name] for name in ("500", "closed", "slow")} == {QUICK["tries"]}
    assert tries["400"] == tries["half"] == 1
    assert {tries[name] for name in refused.values()} == {1}
    first, second = model.times[parts[5]]
    assert second - first >= 1  # Retry-After, where the back-off is 0.01
    assert all(body["temperature"] == 0 and body["model"] == "qwen" for body in model.bodies)
    assert set(model.paths) == {"/v1/chat/completions"}
    assert not any("Authorization" in headers for headers in model.headers)

    # A second run asks only what has no answer yet; here all of it is answered now.
    model.play = good
    model.asked.clear()
    again = run(build, model, out)
    assert set(model.asked) == {parts[i] for i in failed}
    assert again == MergeResult(20 - len(refused), len(refused), len(refused), 0)
    # And then nothing is asked: the same bytes without a server.
    data = out.read_bytes()
    model.close()
    assert run(build, model, out) == again
    assert out.read_bytes() == data
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name, out.name + ".replies"]


def test_key_and_limit(
    serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RULEWORLD_API_KEY", " k9-Xq7\n")
    model = serve(good)
    out = tmp_path / "out.parquet"
    assert run(build, model.url + "/", out, limit=11) == MergeResult(11, 0, 0, 0)
    assert {headers["Authorization"] for headers in model.headers} == {"Bearer k9-Xq7"}
    assert set(model.paths) == {"/v1/chat/completions"}
    assert pq.read_table(out)["id"].to_pylist() == [f"multi_rule_3-validation-{i:07d}" for i in range(11)]
    # Another model is asked anew: its answers have keys of their own.
    merge_split(build, "multi_rule_3", "validation", model.url, "other", out, 2, **QUICK)
    assert pq.read_table(out)["template_id"].to_pylist() == ["llm:other"] * 2
    assert len(model.bodies) == 13


def test_a_killed_run_asks_no_question_twice(
    serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path
) -> None:
    answers: Counter[tuple[str, ...]] = Counter()
    hold = True

    def play(parts: list[str], nth: int) -> str:
        with model.lock:
            held = hold and len(answers) >= 6
            if not held:
                answers[tuple(parts)] += 1
        if held:
            model.release.wait(30)
        return good(parts)

    model = serve(play)
    out = tmp_path / "out.parquet"
    code = (
        "import sys; from ruleworld_data.merge import merge_split; "
        "merge_split(sys.argv[1], 'multi_rule_3', 'validation', sys.argv[2], 'qwen', sys.argv[3])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(build), model.url, str(out)])
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and kept(out) < 6:
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert kept(out) == 6
    assert not out.exists()
    hold = False
    assert run(build, model, out) == MergeResult(20, 0, 0, 0)
    assert len(answers) == kept(out) == 20
    assert set(answers.values()) == {1}


def test_an_endpoint_that_cannot_work_is_told_at_the_first_question(
    serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    for status in (401, 302):
        model = serve(lambda parts, nth, status=status: status)
        with pytest.raises(
            ValueError, match=rf"does not answer \(HTTP {status} .*check .*--endpoint http"
        ) as error:
            run(build, model, out)
        assert sum(model.asked.values()) == 1 and "so said the server" in str(error.value)
        model.close()
    with pytest.raises(ValueError, match=r"does not answer \(cannot connect: .*refused"):
        run(build, model, out)  # nobody listens there now
    assert not out.exists()


def test_an_endpoint_that_stops_answering_ends_the_run(
    serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    served: list[int] = []

    def three_then_none(parts: list[str], nth: int) -> str | int:
        with model.lock:
            served.append(1)
            return good(parts) if len(served) <= 3 else 503

    model = serve(three_then_none)
    monkeypatch.setattr(reword, "FAILURES_IN_A_ROW", 4)
    monkeypatch.setattr(reword, "THREADS", 2)
    with pytest.raises(
        ValueError, match=r"stopped answering: 4 questions in a row .*HTTP 503.*the same command again"
    ):
        run(build, model, out, timeout=5, tries=2)
    assert not out.exists()
    assert len(model.asked) < 12
    assert kept(out) == 3
    with pytest.raises(ValueError, match=r"answered none of 2 questions.*no chat completion .*<html>"):
        run(build, serve(lambda parts, nth: b"<html>hello"), tmp_path / "other.parquet", 2)
    assert not (tmp_path / "other.parquet").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subtask": "multi_hop_3"}, r"nothing to merge; type one of: --subtask multi_rule_2,"),
        ({"split": "tset"}, r"unknown split 'tset'; did you mean 'test'"),
        ({"split": "train"}, r"holds no train questions of multi_rule_3"),
        ({"limit": 0}, r"limit .*got 0"),
        ({"model": " "}, r"the model has no name; type .*--model"),
        ({"endpoint": "localhost:8000"}, r"'localhost:8000' is no web address; type .*--endpoint http"),
        ({"endpoint": "http://host:99999999/v1"}, r"no web address"),
        ({"endpoint": "http://host/v1/chat/completions"}, r"type: --endpoint http://host/v1$"),
        ({"endpoint": "http://me:secret@host/v1"}, r"RULEWORLD_API_KEY"),
        ({"out": "out.txt"}, r"must be a parquet file, got .*out\.txt; type e\.g\. --out"),
        ({"folder": "nowhere"}, r"no build; make one with: ruleworld build"),
    ],
)
def test_wrong_arguments_are_named(build: Path, tmp_path: Path, change: dict, message: str) -> None:
    arguments = {
        "folder": build,
        "subtask": "multi_rule_3",
        "split": "validation",
        "endpoint": "http://127.0.0.1:1/v1",
        "model": "qwen",
        "out": "out.parquet",
        "limit": None,
    } | change
    arguments["out"] = tmp_path / str(arguments["out"])
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        merge_split(**arguments)
    assert "secret" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_shards_of_a_build_are_not_overwritten(build: Path) -> None:
    shard = next(iter(sorted(build.glob("*/*.parquet"))))
    data = shard.read_bytes()
    with pytest.raises(ValueError, match="among the shards"):
        run(build, "http://127.0.0.1:1/v1", shard)
    assert shard.read_bytes() == data


def test_command_line(serve: Callable[[Play], FakeModel], build: Path, tmp_path: Path) -> None:
    from ruleworld_data.cli import app

    model, out = serve(good), tmp_path / "out.parquet"
    options = ["merge", str(build), "--model", "qwen", "--out", str(out), "--subtask", "multi_rule_3"]
    options += ["--split", "validation", "--limit", "4", "--endpoint"]
    result = CliRunner().invoke(app, [*options, model.url])
    assert result.exit_code == 0, result.output
    assert "4 reworded, 0 kept as they were (0 refused, 0 without an answer)" in result.output
    result = CliRunner().invoke(app, [*options, "localhost"])
    assert result.exit_code == 2
    assert "no web address" in result.output
    assert "Traceback" not in result.output


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("k9\nXq7", "k9\u2603", "k9 Xq7"):
        monkeypatch.setenv("RULEWORLD_API_KEY", key)
        with pytest.raises(ValueError, match="RULEWORLD_API_KEY holds characters that no key has") as error:
            run(build, "http://127.0.0.1:1/v1", tmp_path / "out.parquet")
        assert "k9" not in str(error.value)
