"""Builds: the same bytes whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import ruleworld_data
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.io import (
    build,
    build_stats,
    export,
    plan,
    read_build,
    read_manifest,
    rule_schema,
    world_spec,
)
from ruleworld_data.spec import QUESTION_SPLITS, RULE_SPLITS, SUBTASKS, VERSION, Dials, WorldSpec

SCRIPT = """
import sys
from ruleworld_data.io import build
if __name__ == "__main__":
    build(sys.argv[1], "tiny", jobs=int(sys.argv[2]), progress=lambda shard, done, total: print(done, flush=True))
"""

pytestmark = pytest.mark.usefixtures("tables_at_hand")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a finished tiny build; tests must not write to it."""
    folder = tmp_path_factory.mktemp("built") / "new" / "folder"
    build(folder, "tiny")
    return folder


@pytest.fixture
def copy(built, tmp_path):
    for name, data in contents(built).items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
    return tmp_path / "copy"


def start(tmp_path, folder, jobs, shards):
    """Start a build in a process of its own and wait until some shards are done."""
    script = tmp_path / "run_build.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(ruleworld_data.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(jobs)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    for _ in range(shards):
        assert process.stdout.readline()
    return process


def test_the_manifest_tells_every_file(built):
    manifest = json.loads((built / "build.json").read_text())
    assert {k: manifest[k] for k in ("format", "generator_version", "scale", "seed")} == {
        "format": 1,
        "generator_version": ruleworld_data.GENERATOR_VERSION,
        "scale": "tiny",
        "seed": 0,
    }
    shards = manifest["shards"]
    tables = [("rules", s) for s in RULE_SPLITS] + [(c, s) for s in QUESTION_SPLITS for c in SUBTASKS]
    assert sorted((s["config"], s["split"]) for s in shards) == sorted(tables)
    assert {s["path"] for s in shards} == set(contents(built)) - {"build.json"}
    for shard in shards:
        assert shard["path"] == f"{shard['config']}/{shard['split']}-00000-of-00001.parquet"
        data = (built / shard["path"]).read_bytes()
        assert shard["sha256"] == sha256(data).hexdigest() and shard["bytes"] == len(data)
        assert shard["rows"] == pq.read_metadata(built / shard["path"]).num_rows
    assert read_manifest(built) == manifest


def test_files_hold_the_tables(built):
    for shard in read_manifest(built)["shards"]:
        table = pq.read_table(built / shard["path"], partitioning=None)
        if shard["config"] == "rules":
            expected = rule_table(shard["split"], "tiny")
        else:
            expected = question_table(shard["config"], shard["split"], "tiny")
        assert table.column_names == expected.column_names
        assert table.to_pylist() == expected.to_pylist()


def test_a_second_run_writes_the_same_bytes(built, tmp_path, tables_at_hand):
    for made in tables_at_hand:
        made.cache_clear()
    build(tmp_path / "again", "tiny")
    assert contents(tmp_path / "again") == contents(built)


def test_two_workers_write_the_same_bytes(built, tmp_path):
    process = start(tmp_path, tmp_path / "out", jobs=2, shards=0)
    assert process.communicate(timeout=120)[0].split() == [str(i) for i in range(1, 58)]
    assert process.returncode == 0 and contents(tmp_path / "out") == contents(built)


@pytest.mark.parametrize(("jobs", "shards"), [(1, 0), (1, 1), (1, 20), (2, 3)])
def test_a_killed_build_resumes_to_the_same_bytes(built, tmp_path, jobs, shards):
    process = start(tmp_path, tmp_path / "out", jobs, shards)
    if not shards:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out").glob("*/*")) and time.monotonic() < deadline:
            time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "build.json").exists()
    command = rf"ruleworld build --out \S+ --scale tiny --seed 0 --data-version {VERSION}$"
    with pytest.raises(FileNotFoundError, match=f"unfinished build; finish it with: {command}"):
        read_manifest(tmp_path / "out")
    seen = []
    build(tmp_path / "out", "tiny", progress=lambda shard, *_: seen.append(shard.resumed))
    assert sum(seen) >= shards
    assert contents(tmp_path / "out") == contents(built)


def test_workers_end_with_the_build(tmp_path):
    process = start(tmp_path, tmp_path / "out", jobs=2, shards=3)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(workers) >= 2
    process.kill()
    process.wait()
    try:
        deadline = time.monotonic() + 5
        while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(alive(pid) for pid in workers)
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_build_that_dies_while_writing_a_shard_leaves_no_half_shard(built, tmp_path, monkeypatch):
    rename, done = Path.replace, []

    def die(path, target):
        done.append(path)
        if len(done) == 6:  # the file that says what is being built, four shards, and half of the fifth
            path.write_bytes(path.read_bytes()[:100])
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out", "tiny")
    monkeypatch.undo()
    assert len(list((tmp_path / "out").glob("*/*.parquet"))) == 4
    build(tmp_path / "out", "tiny")
    assert contents(tmp_path / "out") == contents(built)


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_foreign(path: Path) -> None:
    path.write_bytes((path.parent / "test-00000-of-00001.parquet").read_bytes())


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[300] ^= 255
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        damage_truncate,
        damage_empty,
        damage_foreign,
        damage_middle,
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_shard_is_written_again(built, copy, damage):
    damage(copy / "multi_hop_3" / "train-00000-of-00001.parquet")
    assert contents(copy) != contents(built)
    build(copy, "tiny")
    assert contents(copy) == contents(built)


def test_a_finished_build_is_left_as_it_is(copy):
    times = {name: (copy / name).stat().st_mtime_ns for name in contents(copy) if name != "build.json"}
    seen = []
    build(copy, "tiny", progress=lambda shard, done, total: seen.append((shard.resumed, done, total)))
    assert seen == [(True, i, 57) for i in range(1, 58)]
    assert times == {name: (copy / name).stat().st_mtime_ns for name in times}


def test_what_a_kill_left_of_a_shard_is_taken_over(built, copy):
    (copy / "rules" / "train-00000-of-00001.parquet").unlink()
    (copy / "rules" / ".train-00000-of-00001.parquet.part").write_bytes(b"half" * 1_000_000)
    build(copy, "tiny")
    assert contents(copy) == contents(built)


@pytest.mark.parametrize("name", ["..build-started.json.part", ".build.json.part"])
def test_what_a_kill_left_of_the_manifest_is_taken_over(built, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{")
    build(tmp_path / "out", "tiny")
    assert contents(tmp_path / "out") == contents(built)


def spoil_version(folder: Path) -> None:
    manifest = json.loads((folder / "build.json").read_text())
    (folder / "build.json").write_text(json.dumps(manifest | {"generator_version": "0.0.1"}))


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        (
            lambda f: (f / "build.json").unlink(),
            {},
            "is not empty and holds no build; choose a new or empty folder",
        ),
        (lambda f: None, {"seed": 1}, r"holds another build: seed 0 \(wanted 1\)"),
        (lambda f: None, {"scale": "paper"}, r"holds another build: scale 'tiny' \(wanted 'paper'\)"),
        (spoil_version, {}, "holds another build: generator_version '0.0.1'"),
        (lambda f: (f / "build.json").write_text("{"), {}, r"build.json is damaged"),
        (lambda f: (f / "build.json").write_text("[]"), {}, r"build.json is damaged"),
        (lambda f: None, {"jobs": 0}, "jobs must be a positive integer, got 0"),
        (lambda f: None, {"jobs": True}, "jobs must be a positive integer, got True"),
        (lambda f: None, {"scale": "tinny"}, "unknown scale 'tinny'; did you mean 'tiny'"),
        (lambda f: None, {"seed": -1}, "seed must be an integer"),
    ],
)
def test_folders_that_hold_something_else_are_left_alone(copy, prepare, arguments, message):
    prepare(copy)
    before = contents(copy)
    with pytest.raises(ValueError, match=message):
        build(copy, **({"scale": "tiny"} | arguments))
    assert contents(copy) == before


def test_a_build_with_dials_says_so_and_can_be_exported(tmp_path):
    dials = Dials(hops=5, parts=5, crowd=6, conjunction=2, thresholds=True)
    build(tmp_path / "out", "tiny", version="1.1", dials=dials)
    assert world_spec(read_build(tmp_path / "out")) == WorldSpec("tiny", version="1.1", dials=dials)
    rules = pq.read_table(tmp_path / "out" / "rules" / "train-00000-of-00001.parquet")
    assert rules.schema.names == rule_schema(dials).names and rules.schema.types == rule_schema(dials).types
    assert rules.to_pylist() == rule_table("train", "tiny", version="1.1", dials=dials).to_pylist()
    stats = build_stats(tmp_path / "out")
    assert stats.dials == dials.to_dict() and stats.rules["train"]["place_state2attr"]
    assert stats.rows["multi_rule_10"]["test"] == stats.rows["multi_hop_5"]["test"] == 50
    export(tmp_path / "out", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "config_name: multi_hop_5" in card and "| count2state |" in card and "--dials hops=5" in card


def test_an_unfinished_build_names_its_version_and_dials(tmp_path):
    head = {"format": 1, "generator_version": "1.1.0", "scale": "tiny", "seed": 4}
    (tmp_path / ".build-started.json").write_text(
        json.dumps(head | {"dials": {"hops": 6, "thresholds": True}})
    )
    with pytest.raises(
        FileNotFoundError, match=r"--seed 4 --data-version 1.1 --dials hops=6,thresholds=true$"
    ):
        read_manifest(tmp_path)
    with pytest.raises(ValueError, match=r"dials \{'hops': 6, 'thresholds': True\} \(wanted None\)"):
        build(tmp_path, "tiny", seed=4, version="1.1")


def test_an_unfinished_build_of_another_seed_is_refused(tmp_path):
    (tmp_path / ".build-started.json").write_text(
        json.dumps(
            {"format": 1, "generator_version": ruleworld_data.GENERATOR_VERSION, "scale": "tiny", "seed": 4}
        )
    )
    with pytest.raises(ValueError, match=r"seed 4 \(wanted 0\)"):
        build(tmp_path, "tiny")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file; name a new or empty folder"):
        build(tmp_path / "out", "tiny")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (None, FileNotFoundError, "holds no build.json, so it is no build; make one with: ruleworld build"),
        ("{", ValueError, "is damaged"),
        ("[]", ValueError, "is damaged"),
        ('{"format": 2, "shards": []}', ValueError, "is damaged"),
        ('{"format": 1}', ValueError, "is damaged"),
    ],
)
def test_manifests_that_cannot_be_read(tmp_path, text, error, message):
    if text is not None:
        (tmp_path / "build.json").write_text(text)
    with pytest.raises(error, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize("scale", ["tiny", "paper", "full"])
def test_plans_cover_every_row_once(scale):
    shards = plan(scale)
    assert len({shard.path for shard in shards}) == len(shards)
    totals = {}
    for shard in shards:
        assert shard.start == totals.get((shard.config, shard.split), 0) < shard.stop
        totals[shard.config, shard.split] = shard.stop
    assert totals["rules", "train"] == {"tiny": 1_984, "paper": 100_235, "full": 4_936_113}[scale]
    assert (
        sum(rows for (config, split), rows in totals.items() if config != "rules" and split == "train")
        == {
            "tiny": 1_100,
            "paper": 111_200,
            "full": 3_377_737,
        }[scale]
    )
