"""Builds by several machines: the same bytes for any shards, order, kill and place; what is missing is named."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest
from ruleworld_data.cli import app
from ruleworld_data.io import build, build_anywhere, parse_shard
from ruleworld_data.spec import WorldSpec
from typer.testing import CliRunner

SPEC = WorldSpec("tiny")
pytestmark = pytest.mark.usefixtures("tables_at_hand")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def command(*words: str) -> str:
    done = CliRunner().invoke(app, ["build", "--scale", "tiny", "--quiet", "--jobs", "1", *map(str, words)])
    assert "Traceback" not in done.output
    return f"{done.exit_code} {done.output}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "data"
    build(folder, "tiny")
    return folder


@pytest.mark.parametrize("shards", [["1/2", "2/2"], ["3/3", "1/3", "2/3"], ["5/70", "1/4", "2/2", "3/4"]])
def test_any_shards_in_any_order_make_the_same_bytes(built, tmp_path, shards, tables_at_hand):
    for made in tables_at_hand:
        made.cache_clear()
    for shard in shards:
        assert not (tmp_path / "out" / "build.json").exists()
        assert command("--out", tmp_path / "out", "--shard", shard).startswith("0 ")
    assert command("--out", tmp_path / "out", "--merge").startswith("0 ")
    assert contents(tmp_path / "out") == contents(built)


def test_a_missing_shard_is_named_and_nothing_is_made(tmp_path):
    command("--out", tmp_path, "--shard", "1/2")
    before = contents(tmp_path)
    said = command("--out", tmp_path, "--merge")
    assert said.startswith("2 ruleworld: 28 of 57 shards are missing") and "--shard i/n" in said
    assert "rules/heldout-00000-of-00001.parquet" in said
    assert contents(tmp_path) == before


def test_shards_of_another_version_or_scale_are_refused_with_both_named(tmp_path):
    command("--out", tmp_path, "--shard", "1/57")
    started = tmp_path / ".build-started.json"
    head = started.read_text()
    started.write_text(head.replace('"1.1.0"', '"1.0.0"'))
    said = command("--out", tmp_path, "--shard", "2/57")
    assert said.startswith("2 ") and "generator_version '1.0.0' (wanted '1.1.0')" in said
    started.write_text(head)
    said = command("--out", tmp_path, "--shard", "2/57", "--seed", "3")
    assert said.startswith("2 ") and "seed 0 (wanted 3)" in said


@pytest.mark.parametrize("text", ["0/2", "3/2", "x", "1", "1/", "-1/2", "1/2/3", "²/3"])
def test_shards_that_are_none_are_refused(tmp_path, text):
    with pytest.raises(ValueError, match="--shard must be i/n"):
        parse_shard(text)
    assert not command("--out", tmp_path, "--shard", text).startswith("0 ")


def test_shard_and_merge_do_not_go_together(tmp_path):
    assert "give one of them" in command("--out", tmp_path, "--shard", "1/2", "--merge")


def test_a_killed_machine_loses_only_the_file_that_it_was_at(built, tmp_path):
    words = ["build", "--scale", "tiny", "--jobs", "1", "--out", tmp_path / "out", "--shard"]
    ours = [sys.executable, "-m", "ruleworld_data.cli"]
    process = subprocess.Popen([*ours, *words, "1/2"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out").glob("*/*.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*.parquet")}
    command("--out", tmp_path / "out", "--shard", "2/2")
    command("--out", tmp_path / "out", "--shard", "1/2")
    assert {path: path.stat().st_mtime_ns for path in there} == there
    command("--out", tmp_path / "out", "--merge")
    assert contents(tmp_path / "out") == contents(built)


def remote_contents(url: str) -> dict[str, bytes]:
    system, root = fsspec.core.url_to_fs(url)
    return {path[len(root) + 1 :]: system.cat_file(path) for path in sorted(system.find(root))}


@pytest.mark.parametrize("place", ["memory", "local"])
def test_a_url_holds_what_a_folder_would(built, tmp_path, place):
    url = f"memory://{tmp_path.name}" if place == "memory" else (tmp_path / "out").as_uri()
    assert command("--out", url, "--shard", "2/2").startswith("0 ")
    assert "29 of 57 shards are missing" in command("--out", url, "--merge")
    assert "seed 0 (wanted 1)" in command("--out", url, "--shard", "1/2", "--seed", "1")
    system, root = fsspec.core.url_to_fs(url)
    held = f"{root}/rules/heldout-00000-of-00001.parquet"
    system.pipe_file(held, b"half")
    assert command("--out", url, "--shard", "1/2").startswith("0 ")
    system.pipe_file(held, b"half")  # a part that broke off is no shard
    assert "such as rules/heldout-00000-of-00001.parquet" in command("--out", url, "--merge")
    made = build_anywhere(url, SPEC)
    assert made == json.loads((built / "build.json").read_text())
    assert remote_contents(url) == contents(built)
    assert command("--out", url, "--merge").startswith("0 ")
    assert remote_contents(url) == contents(built)


def test_a_file_appears_at_a_url_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        build_anywhere((tmp_path / "out").as_uri(), SPEC, part=(1, 57))
    monkeypatch.undo()
    assert set(contents(tmp_path / "out")) == {".build-started.json"}


def test_ray_is_not_imported_unless_it_is_asked_for(tmp_path):
    code = "import sys\nfrom ruleworld_data.io import build_anywhere\nfrom ruleworld_data.spec import WorldSpec\n"
    code += "build_anywhere(sys.argv[1], WorldSpec('tiny'), part=(1, 57))\nprint('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_ray_the_message_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'ruleworld-data[ray]'" in command("--out", tmp_path, "--ray", "auto")


def test_a_url_that_takes_nothing_is_named():
    assert "nothing can be written to http://127.0.0.1:1/x" in command("--out", "http://127.0.0.1:1/x")
