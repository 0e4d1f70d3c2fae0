"""``load_dataset("ruleworld", ...)``: every way to call it, at scale tiny, against the tables of the generator."""

import json
import os
from pathlib import Path

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.io.builder import MAX_SHARD_ROWS, RuleWorld, shard_ranges
from ruleworld_data.io.register import patch
from ruleworld_data.io.schema import QUESTION_SCHEMA, RULE_SCHEMA
from ruleworld_data.spec import ALL_SUBTASKS, SUBTASKS, VERSION, Dials

from ..cases import question_table, rule_table

ROWS = {"train": 100, "validation": 20, "test": 50, "mini": 50, "heldout": 20}
DIALS = Dials(crowd=6, conjunction=2, thresholds=True)
patch(datasets.load)


def load(cache, name, **options):
    return datasets.load_dataset("ruleworld", name, cache_dir=str(cache), **{"scale": "tiny"} | options)


def test_every_call_from_an_empty_directory_without_network(run_python):
    printed = run_python(
        """
import json
from datasets import get_dataset_config_names, get_dataset_split_names, load_dataset
out = {
    "configs": get_dataset_config_names("ruleworld"),
    "splits": get_dataset_split_names("ruleworld", "multi_hop_3"),
    "counts": {name: len(rows) for name, rows in load_dataset("ruleworld", "multi_hop_3", scale="tiny").items()},
    "parallel": load_dataset("ruleworld", "rules", scale="tiny", seed=5, num_proc=2, split="train")[1983],
    "streamed": next(iter(load_dataset("ruleworld", "rules", scale="tiny", seed=5, streaming=True, split="train"))),
}
print(json.dumps(out))
"""
    )
    out = json.loads(printed.splitlines()[-1])
    assert out["configs"][:12] == [*SUBTASKS, "rules"] and {*out["configs"]} == {*ALL_SUBTASKS, "rules"}
    assert out["splits"] == list(ROWS) and out["counts"] == ROWS
    rules = rule_table("train", scale="tiny", seed=5).to_pylist()
    assert [out["streamed"], out["parallel"]] == [rules[0], rules[-1]] and len(rules) == 1984


def test_questions_are_the_generator_s(tmp_path):
    loaded = load(tmp_path, "multi_rule_5")
    assert {split: len(rows) for split, rows in loaded.items()} == ROWS
    for split, rows in loaded.items():
        assert rows.to_list() == question_table("multi_rule_5", split, scale="tiny").to_pylist()
    features, text = loaded["test"].features, datasets.Value("string")
    assert list(features) == QUESTION_SCHEMA.names and features["n_hops"] == datasets.Value("int8")
    assert features["answers"] == datasets.List(text)
    step = {"rule_ids": datasets.List(datasets.Value("int32")), "nl": text, "fol": text, "state": text}
    assert features["steps"] == datasets.List(step)


def test_streaming_gives_the_same_rows_in_shards(tmp_path):
    expected = question_table("multi_hop_2", "train", scale="tiny", seed=3).to_pylist()
    stream = load(tmp_path, "multi_hop_2", seed=3, streaming=True)["train"]
    assert list(stream) == expected
    assert stream.num_shards > 4
    halves = [list(stream.shard(2, index)) for index in range(2)]
    assert halves[0] + halves[1] == expected and all(halves)
    resumed = load(tmp_path, "multi_hop_2", seed=3, streaming=True)["train"]
    for count, _ in enumerate(stream, start=1):
        if count == 40:
            resumed.load_state_dict(stream.state_dict())
            break
    assert list(resumed) == expected[40:]


def test_one_representation(tmp_path):
    kept, dropped = "nl", "fol"
    rules = load(tmp_path, "rules", form=kept)["train"]
    gone = {dropped, f"premise_{dropped}", f"conclusion_{dropped}"}
    assert rules.column_names == [name for name in RULE_SCHEMA.names if name not in gone]
    assert rules[kept] == rule_table("train", scale="tiny")[kept].to_pylist()
    questions = load(tmp_path, "multi_rule_2", form=kept)["test"]
    assert questions.column_names == QUESTION_SCHEMA.names
    expected = [
        [{name: value for name, value in step.items() if name != dropped} for step in steps]
        for steps in question_table("multi_rule_2", "test", scale="tiny")["steps"].to_pylist()
    ]
    assert questions["steps"] == expected


def test_every_option_is_part_of_the_cache_key_and_defaults_are_not(tmp_path):
    def folder(**options):
        return Path(load(tmp_path, "single_rule", **options)["test"].cache_files[0]["filename"]).parent

    tiny = folder()
    assert len({tiny, folder(seed=1), folder(form="nl"), folder(seed=1, form="nl")}) == 4
    before = os.stat(tiny / "dataset_info.json").st_mtime_ns
    assert folder(seed=0, form="both") == folder(version=VERSION) == folder(version=f"{VERSION}.0") == tiny
    assert len(list(tmp_path.glob("ruleworld/*/*/*/dataset_info.json"))) == 4
    assert os.stat(tiny / "dataset_info.json").st_mtime_ns == before, "generated again instead of reused"

    def config_id(name, **options):
        return RuleWorld(cache_dir=str(tmp_path), config_name=name, **options).config_id

    assert (config_id("rules"), config_id("rules", scale="full")) == ("rules", "rules-scale=full")
    assert config_id("multi_hop_6") == config_id("multi_hop_6", hops=6, crowd=None) == "multi_hop_6"
    assert config_id("multi_hop_6", hops=7, crowd=16) == "multi_hop_6-crowd=16,hops=7"
    assert config_id("multi_hop_3", hops=4, conjunction=2).startswith("multi_hop_3-conjunction=2")


def test_dials_are_options(tmp_path):
    options = {"version": "1.1", **DIALS.to_dict()}
    made = {"scale": "tiny", "version": "1.1", "dials": DIALS}
    questions = load(tmp_path, "multi_hop_3", **options)["test"]
    assert questions.to_list() == question_table("multi_hop_3", "test", **made).to_pylist()
    rules = load(tmp_path, "rules", **options)["train"]
    assert rules.to_list() == rule_table("train", **made).to_pylist()
    assert rules.column_names == [*RULE_SCHEMA.names, "threshold"]
    assert set(rules["world_id"]) == set(questions["world_id"]) == {f"rw-0-{DIALS.tag}"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multihop_3", {}, r"unknown configuration 'multihop_3'; did you mean 'multi_hop_3'.*rules"),
        ("multi_hop_6", {"hops": 5}, "multi_hop_6 needs hops=6 or more, got hops=5"),
        ("multi_hop_3", {"crowd": 64}, r"crowd must be from \d+ to \d+ in a world of 16 actions"),
        ("rules", {"hop": 6}, "unknown option 'hop'; did you mean 'hops'"),
        (None, {}, r"name one, as in load_dataset\('ruleworld', 'multi_hop_3'\)"),
        ("rules", {"form": "NL"}, r"unknown form 'NL'.*both, nl, fol"),
        ("single_rule", {"split": "unseen", "version": "1.1"}, r"heldout'\].* 1.2 on: version='1.2'"),
        ("single_rule", {"split": "unseen", "streaming": True}, "Bad split.*on: version='1.2'"),
        ("rules", {"version": "1.9"}, r"unknown version '1.9'; did you mean '1.*Known: 1.1, 1.2"),
    ],
)
def test_mistakes_are_answered_with_what_to_type(tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, name, **options)


def test_a_folder_of_the_name_is_read_or_named(tmp_path, monkeypatch):
    """In the working directory its data win over the generator, and without data it stands in the way."""
    monkeypatch.chdir(tmp_path)
    Path("ruleworld").mkdir()
    Path("ruleworld/train.json").write_text("{}")
    Path("ruleworld/test.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match=r"ruleworld is a folder of the working directory.*rename the folder"
    ):
        load(tmp_path, "multi_hop_3")
    Path("ruleworld/train.json").unlink()
    with pytest.raises(
        ValueError, match=r"folder of the working.*'multi_hop_3' not found.*rename the folder"
    ):
        load(tmp_path, "multi_hop_3")
    with pytest.raises(ValueError, match=r"folder of the working.*have a 'scale' key.*rename the folder"):
        load(tmp_path, None)
    Path("ruleworld/ruleworld.py").touch()
    with pytest.raises(ValueError, match=r"folder of the working.*scripts are no longer supported.*rename"):
        load(tmp_path, "multi_hop_3")
    Path("ruleworld/ruleworld.py").unlink()
    rows = datasets.load_dataset("ruleworld", split="test", cache_dir=str(tmp_path / "cache"))
    assert rows[0] == {"a": 1, "b": 2}


@given(st.integers(1, 6_000_000))
def test_shards_cover_every_row_once(rows):
    ranges = shard_ranges(rows)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == rows
    assert all(0 < stop - start <= MAX_SHARD_ROWS for start, stop in ranges)
    if rows >= 20:
        assert len(ranges) >= 2, "num_proc=2 would have nothing to share"
