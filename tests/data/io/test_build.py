"""Builds: the same bytes for any workers, machines and kills; what is missing or foreign is named."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq
import pytest
from ruleworld_data.cli import app
from ruleworld_data.io import (
    build,
    build_stats,
    builds,
    export,
    plan,
    read_build,
    read_manifest,
    rule_schema,
    world_spec,
)
from ruleworld_data.spec import RULE_SPLITS, SUBTASKS, VERSION, Dials, WorldSpec, splits_of
from typer.testing import CliRunner

from ..cases import contents, question_table, rule_table

HEAD = {"format": 1, "generator_version": f"{VERSION}.0", "scale": "tiny", "seed": 0}
SHARD = "multi_hop_3/train-00000-of-00001.parquet"
pytestmark = pytest.mark.usefixtures("tables_at_hand")


def command(*words: object) -> str:
    done = CliRunner().invoke(app, ["build", "--scale", "tiny", "--jobs", "1", *map(str, words)])
    assert "Traceback" not in done.output
    return f"{done.exit_code} {done.output}"


@pytest.fixture
def copy(built, tmp_path):
    return shutil.copytree(built, tmp_path / "copy")


def start(folder: Path, shards: int, *words: str) -> subprocess.Popen:
    """Start a build in a process of its own and wait until some shards are there."""
    command = [sys.executable, "-m", "ruleworld_data.cli", "build", "--scale", "tiny", "--out", str(folder)]
    process = subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while len([*folder.glob("*/*.parquet")]) < shards or not folder.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    return process


def test_the_manifest_and_the_files_hold_the_tables(built):
    manifest = read_manifest(built)
    assert {name: manifest[name] for name in HEAD} == HEAD
    shards = manifest["shards"]
    tables = [("rules", s) for s in RULE_SPLITS] + [(c, s) for s in splits_of(VERSION) for c in SUBTASKS]
    assert [(s["config"], s["split"]) for s in shards] == tables
    assert {s["path"] for s in shards} == set(contents(built)) - {"build.json"}
    for shard in shards:
        assert shard["path"] == f"{shard['config']}/{shard['split']}-00000-of-00001.parquet"
        data = (built / shard["path"]).read_bytes()
        assert shard["sha256"] == sha256(data).hexdigest() and shard["bytes"] == len(data)
        table = pq.read_table(built / shard["path"], partitioning=None)
        make = (rule_table,) if shard["config"] == "rules" else (question_table, shard["config"])
        expected = make[0](*make[1:], shard["split"], "tiny")
        assert shard["rows"] == len(table) and table.column_names == expected.column_names
        assert table.to_pylist() == expected.to_pylist()


def test_two_workers_that_begin_anew_write_the_same_bytes(built, tmp_path, tables_at_hand):
    for made in tables_at_hand:
        made.cache_clear()
    build(tmp_path / "again", "tiny", jobs=2)
    assert contents(tmp_path / "again") == contents(built)


@pytest.mark.parametrize(("jobs", "shards"), [(1, 20), (2, 3)])
def test_a_killed_build_ends_its_workers_and_resumes_to_the_same_bytes(built, tmp_path, jobs, shards):
    process = start(tmp_path / "out", shards, "--jobs", str(jobs))
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(workers) >= jobs * (jobs > 1)
    process.kill()
    process.wait()

    def alive(pid: str) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False

    try:
        deadline = time.monotonic() + 60
        while any(map(alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(map(alive, workers))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*.parquet")}
    again = rf"finish it with: ruleworld build --out \S+ --scale tiny --seed 0 --data-version {VERSION}$"
    with pytest.raises(FileNotFoundError, match=again):
        read_manifest(tmp_path / "out")
    build(tmp_path / "out", "tiny")
    assert len(there) >= shards and {path: path.stat().st_mtime_ns for path in there} == there
    assert contents(tmp_path / "out") == contents(built)


def cut(path: Path) -> None:
    """Write fewer rows as a shard of a build that was not finished, which knows no digest yet."""
    pq.write_table(pq.read_table(path)[1:], path)
    (path.parents[1] / "build.json").write_text(json.dumps(HEAD | {"shards": []}))


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        Path.unlink,
        lambda path: shutil.copy(path.parent / "test-00000-of-00001.parquet", path),
        lambda path: path.write_bytes(path.read_bytes()[:300] + b"\xff\x01" + path.read_bytes()[302:]),
    ],
    ids=["cut", "missing", "another's", "a changed byte"],
)
def test_a_damaged_shard_is_written_again_and_no_other(built, copy, damage):
    damage(copy / SHARD)
    assert contents(copy) != contents(built)
    times = {path: path.stat().st_mtime_ns for path in copy.glob("*/*.parquet") if path != copy / SHARD}
    seen = []
    build(copy, "tiny", progress=lambda done, total, text: seen.append((done, total, text.split()[0])))
    assert seen == [(i, 57, "kept" if i < 57 else "wrote") for i in range(1, 58)]
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert contents(copy) == contents(built)


def test_what_a_kill_left_of_a_new_build_is_in_nobodys_way(built, tmp_path):
    left = tmp_path / ".build.json.0a1b.part"
    left.write_bytes(b"half")
    build(tmp_path, "tiny")
    assert contents(tmp_path) == contents(built) | {left.name: b"half"}


@pytest.mark.parametrize(
    ("manifest", "arguments", "message"),
    [
        (None, {}, "is not empty and holds no build; choose a new or empty folder"),
        (HEAD | {"shards": []}, {"seed": 1}, r"holds another build: seed 0 \(wanted 1\)"),
        (HEAD | {"shards": [], "dials": {"hops": 6}}, {}, r"dials \{'hops': 6\} \(wanted None\)"),
        (HEAD, {}, "build.json is damaged"),
        (HEAD, {"jobs": True}, "jobs must be a positive integer, got True"),
    ],
)
def test_folders_that_hold_something_else_are_left_alone(copy, manifest, arguments, message):
    (copy / "build.json").unlink()
    if manifest is not None:
        (copy / "build.json").write_text(json.dumps(manifest))
    before = contents(copy)
    with pytest.raises(ValueError, match=message):
        build(copy, **({"scale": "tiny"} | arguments))
    assert contents(copy) == before
    for out in (copy / SHARD, "s3://bucket/data"):
        with pytest.raises(ValueError, match="is a file or a URL; name a new or empty folder"):
            build(out, "tiny")


def test_of_two_builds_that_begin_at_once_one_is_refused(tmp_path, monkeypatch):
    barrier, check = Barrier(2), builds._check_is_ours

    def at_once(folder, head):
        held = check(folder, head)
        if not (folder / builds.MANIFEST).exists():
            barrier.wait(60)
        return held

    monkeypatch.setattr(builds, "_check_is_ours", at_once)

    def begin(seed: int) -> str:
        try:
            return str(build(tmp_path, "tiny", seed, part=(57, 57))["seed"])
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        lost, won = sorted(threads.map(begin, (3, 4)), key=len, reverse=True)
    assert f"holds another build: seed {won} (wanted {7 - int(won)})" in lost
    assert json.loads((tmp_path / "build.json").read_text())["seed"] == int(won)


def test_a_build_with_dials_says_so_and_can_be_exported(tmp_path):
    dials = Dials(hops=5, parts=5, crowd=6, conjunction=2, thresholds=True)
    build(tmp_path / "out", "tiny", version="1.1", dials=dials)
    assert world_spec(read_build(tmp_path / "out")) == WorldSpec("tiny", version="1.1", dials=dials)
    rules = pq.read_table(tmp_path / "out" / "rules" / "train-00000-of-00001.parquet")
    assert rules.schema.names == rule_schema(dials).names and rules.schema.types == rule_schema(dials).types
    assert rules.to_pylist() == rule_table("train", "tiny", version="1.1", dials=dials).to_pylist()
    stats = build_stats(tmp_path / "out")
    rules, questions = stats.rules.set_index("rules"), stats.questions.set_index("questions")
    assert stats.built["dials"] == dials.to_dict() and rules["train"]["place_state2attr"]
    assert questions["test"]["multi_rule_10"] == questions["test"]["multi_hop_5"] == 50
    export(tmp_path / "out", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "config_name: multi_hop_5" in card and "count2state" in card and "--dials hops=5" in card


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("build.json", "{", ValueError, "is damaged"),
        ("none", "", FileNotFoundError, "holds no build.json, so it is no build; make one with: ruleworld build"),
        (
            "build.json",
            json.dumps(HEAD | {"seed": 4, "dials": {"hops": 6, "thresholds": True}, "shards": []}),
            FileNotFoundError,
            r"--seed 4 --data-version 1.1 --dials hops=6,thresholds=true$",
        ),
    ],
)  # fmt: skip
def test_manifests_that_cannot_be_read(tmp_path, name, text, error, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(error, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("scale", "rules", "questions"), [("paper", 100_235, 111_200), ("full", 4_936_113, 3_377_737)]
)
def test_plans_cover_every_row_once(scale, rules, questions):
    shards, totals = plan(WorldSpec(scale)), {}
    assert len({shard.path for shard in shards}) == len(shards)
    for shard in shards:
        assert shard.start == totals.get((shard.config, shard.split), 0) < shard.stop
        totals[shard.config, shard.split] = shard.stop
    assert totals.pop(("rules", "train")) == rules
    assert sum(rows for (_, split), rows in totals.items() if split == "train") == questions


def test_any_parts_in_any_order_make_the_same_bytes(built, tmp_path):
    for part in ((5, 70), (1, 4), (2, 2), (3, 4)):
        build(tmp_path, "tiny", part=part)
    assert command("--out", tmp_path).startswith("0 ") and contents(tmp_path) == contents(built)


def test_no_shard_is_written_through_a_link(tmp_path):
    build(tmp_path / "out", "tiny", part=(57, 57))
    (tmp_path / "out" / "rules").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ValueError, match="rules is a link"):
        build(tmp_path / "out", "tiny", part=(1, 57))


def test_ray_is_imported_if_it_is_asked_for_and_named_if_it_is_missing(tmp_path, monkeypatch):
    code = "import sys; from ruleworld_data.io import build\n"
    code += "build(sys.argv[1], 'tiny', part=(57, 57)); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "ray", None)
    assert 'pip install "ruleworld-data[ray]"' in command("--out", tmp_path, "--ray", "auto")
