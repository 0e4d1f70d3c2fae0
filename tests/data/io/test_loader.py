"""``load_dataset("ruleworld", ...)``: every way to call it, at scale tiny, against the tables of the generator."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.io.builder import MAX_SHARD_ROWS, RuleWorld, shard_ranges
from ruleworld_data.io.register import patch
from ruleworld_data.io.schema import QUESTION_SCHEMA, RULE_SCHEMA
from ruleworld_data.spec import VERSION, Dials

SOURCE = Path(__file__).parents[3] / "ruleworld-data" / "src"
ROWS = {"train": 100, "validation": 20, "test": 50, "mini": 50, "heldout": 20}
patch(datasets.load)


def load(cache: Path, name: str, **options: object) -> datasets.DatasetDict:
    return datasets.load_dataset("ruleworld", name, cache_dir=str(cache), **{"scale": "tiny"} | options)


def test_every_call_from_an_empty_directory_without_network(run_python: Callable[..., str]) -> None:
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
    "nl": load_dataset("ruleworld", "single_rule", scale="tiny", form="nl", split="mini").column_names,
}
print(json.dumps(out))
"""
    )
    out = json.loads(printed.splitlines()[-1])
    assert out["configs"] == [
        "single_rule",
        *(f"multi_rule_{width}" for width in range(2, 9)),
        *(f"multi_hop_{hops}" for hops in range(2, 5)),
        "rules",
        *(f"multi_rule_{width}" for width in range(9, 17)),
        *(f"multi_hop_{hops}" for hops in range(5, 9)),
    ]
    assert out["splits"] == list(ROWS)
    assert out["counts"] == ROWS
    rules = rule_table("train", scale="tiny", seed=5).to_pylist()
    assert out["streamed"] == rules[0]
    assert out["parallel"] == rules[1983]
    assert len(rules) == 1984
    assert out["nl"] == QUESTION_SCHEMA.names


@pytest.mark.parametrize("name", ["single_rule", "multi_rule_5", "multi_hop_4"])
def test_questions_are_the_generator_s(tmp_path: Path, name: str) -> None:
    loaded = load(tmp_path, name)
    assert {split: len(rows) for split, rows in loaded.items()} == ROWS
    for split, rows in loaded.items():
        assert rows.to_list() == question_table(name, split, scale="tiny").to_pylist()
    features = loaded["test"].features
    assert list(features) == QUESTION_SCHEMA.names
    assert features["answers"] == datasets.List(datasets.Value("string"))
    assert features["steps"] == datasets.List(
        {
            "rule_ids": datasets.List(datasets.Value("int32")),
            "nl": datasets.Value("string"),
            "fol": datasets.Value("string"),
            "state": datasets.Value("string"),
        }
    )
    assert features["n_hops"] == datasets.Value("int8")


def test_rules_are_the_generator_s_with_any_number_of_processes(tmp_path: Path) -> None:
    one = load(tmp_path / "one", "rules")
    two = load(tmp_path / "two", "rules", num_proc=2)
    assert list(one) == list(two) == ["train", "heldout"]
    for split in one:
        expected = rule_table(split, scale="tiny").to_pylist()
        assert one[split].to_list() == two[split].to_list() == expected
    assert len(one["train"].cache_files) == 1
    assert len(two["train"].cache_files) == 2  # it did run in two processes
    assert one["train"].features["in_paper"] == datasets.Value("bool")


def test_streaming_gives_the_same_rows_in_shards(tmp_path: Path) -> None:
    expected = question_table("multi_hop_2", "train", scale="tiny", seed=3).to_pylist()
    stream = load(tmp_path, "multi_hop_2", seed=3, streaming=True)["train"]
    assert list(stream) == expected
    assert stream.num_shards > 4
    halves = [list(stream.shard(2, index)) for index in range(2)]
    assert halves[0] + halves[1] == expected
    assert all(halves)
    resumed = load(tmp_path, "multi_hop_2", seed=3, streaming=True)["train"]
    state = None
    for count, _ in enumerate(stream, start=1):
        if count == 40:
            state = stream.state_dict()
            break
    resumed.load_state_dict(state)
    assert list(resumed) == expected[40:]


@pytest.mark.parametrize(("kept", "dropped"), [("nl", "fol"), ("fol", "nl")])
def test_one_representation(tmp_path: Path, kept: str, dropped: str) -> None:
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
    assert {tuple(step) for steps in questions["steps"] for step in steps} == {("rule_ids", kept, "state")}


def test_every_option_is_part_of_the_cache_key(tmp_path: Path) -> None:
    def folder(**options: object) -> Path:
        return Path(load(tmp_path, "single_rule", **options)["test"].cache_files[0]["filename"]).parent

    tiny = folder()
    others = [folder(seed=1), folder(form="nl"), folder(seed=1, form="nl")]
    assert len({tiny, *others}) == 4
    assert folder(seed=0, form="both") == tiny, "defaults spelt out made a second entry"
    assert len(list(tmp_path.glob("ruleworld/*/*/*/dataset_info.json"))) == 4
    before = os.stat(tiny / "dataset_info.json").st_mtime_ns
    assert os.stat(folder() / "dataset_info.json").st_mtime_ns == before, "generated again instead of reused"
    # The full scale and the paper scale are named apart as well, without generating them.
    names = {
        RuleWorld(cache_dir=str(tmp_path), config_name="rules", **o).config_id
        for o in ({}, {"scale": "full"})
    }
    assert names == {"rules", "rules-scale=full"}


def test_the_version_may_be_written_in_two_ways(tmp_path: Path) -> None:
    short, long = (load(tmp_path, "multi_hop_3", version=v)["test"] for v in (VERSION, f"{VERSION}.0"))
    assert long.cache_files == short.cache_files, "the same version written otherwise made a second entry"


DIALS = Dials(crowd=6, conjunction=2, thresholds=True)


def test_dials_are_options(tmp_path: Path) -> None:
    options = {"version": "1.1", **DIALS.to_dict()}
    made = {"scale": "tiny", "version": "1.1", "dials": DIALS}
    questions = load(tmp_path, "multi_hop_3", **options)["test"]
    assert questions.to_list() == question_table("multi_hop_3", "test", **made).to_pylist()
    rules = load(tmp_path, "rules", **options)["train"]
    assert rules.to_list() == rule_table("train", **made).to_pylist()
    assert rules.column_names == [*RULE_SCHEMA.names, "threshold"]
    assert set(rules["world_id"]) == set(questions["world_id"]) == {f"rw-0-{DIALS.tag}"}


@pytest.mark.parametrize(
    ("name", "dials"), [("multi_hop_6", Dials(hops=6)), ("multi_rule_11", Dials(parts=6))]
)
def test_names_beyond_the_paper_turn_the_dial_that_they_need(tmp_path: Path, name: str, dials: Dials) -> None:
    rows = load(tmp_path, name)["mini"].to_list()
    assert rows == question_table(name, "mini", "tiny", version="1.1", dials=dials).to_pylist()


def test_what_a_name_implies_and_what_is_spelt_out_is_one_cache_entry() -> None:
    def config_id(name: str, **options: object) -> str:
        return RuleWorld(config_name=name, **options).config_id

    assert config_id("multi_hop_6") == config_id("multi_hop_6", hops=6, crowd=None) == "multi_hop_6"
    assert config_id("multi_hop_6", hops=7, crowd=16) == "multi_hop_6-crowd=16,hops=7"
    assert config_id("multi_hop_3", hops=4, version="1.1", conjunction=2).startswith(
        "multi_hop_3-conjunction=2"
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multihop_3", {}, r"unknown configuration 'multihop_3'; did you mean 'multi_hop_3'.*rules"),
        ("multi_hop_9", {}, r"unknown configuration 'multi_hop_9'; did you mean 'multi_hop_\d'"),
        ("multi_hop_6", {"hops": 5}, r"unknown configuration 'multi_hop_6'; did you mean 'multi_hop_5'"),
        ("multi_hop_6", {"hops": 4}, r"unknown configuration 'multi_hop_6'; did you mean 'multi_hop_4'"),
        ("multi_hop_6", {"hops": 9}, "hops must be an integer from 1 to 8, got 9"),
        (
            "multi_hop_3",
            {"version": "1.1", "crowd": 64},
            r"crowd must be from \d+ to \d+ in a world of 16 actions",
        ),
        ("rules", {"representation": "nl"}, "the option representation is called form; type form='nl'"),
        ("rules", {"hop": 6}, "unknown option 'hop'; did you mean 'hops'"),
        ("Rules", {}, r"unknown configuration 'Rules'; did you mean 'rules'"),
        (None, {}, r"name one, as in load_dataset\('ruleworld', 'multi_hop_3'\)"),
        ("rules", {"scale": "papers"}, r"unknown scale 'papers'; did you mean 'paper'"),
        ("rules", {"scale": 1}, r"unknown scale 1"),
        ("rules", {"form": "NL"}, r"unknown form 'NL'.*both, nl, fol"),
        ("rules", {"seed": True}, r"seed must be an integer.*got True \(bool\)"),
        ("rules", {"seed": "0"}, r"seed must be an integer.*got '0' \(str\)"),
        ("rules", {"seed": 1.0}, r"seed must be an integer.*got 1.0 \(float\)"),
        ("rules", {"seed": -1}, r"seed must be an integer from 0.*got -1 \(int\)"),
        ("rules", {"version": "1.2"}, r"unknown version '1.2'; did you mean '1.*Known: 1.1"),
        ("rules", {"version": 1}, r"unknown version '1'"),
        ("rules", {"version": "../../../x"}, r"unknown version '../../../x'"),  # part of a path in the cache
        ("rules", {"sed": 1}, r"unknown option 'sed'; did you mean 'seed'"),
        ("rules", {"split": "tests"}, r'Unknown split "tests"'),
    ],
)
def test_mistakes_are_answered_with_what_to_type(
    tmp_path: Path, name: str | None, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, name, **options)  # type: ignore[arg-type]


@given(st.integers(1, 6_000_000))
def test_shards_cover_every_row_once(rows: int) -> None:
    ranges = shard_ranges(rows)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == rows
    assert all(0 < stop - start <= MAX_SHARD_ROWS for start, stop in ranges)
    if rows >= 20:
        assert len(ranges) >= 2, "num_proc=2 would have nothing to share"
