"""The constraints that make every answer unique, on the tables, and the streams that worlds are drawn from."""

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.spec import WorldSizes
from ruleworld_data.world import Stream, build_world, mix

from ..cases import rule_table

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("scale", "seed"),
    [("tiny", 0), ("tiny", 3), ("paper", 0), pytest.param("full", 0, marks=pytest.mark.slow)],
)
def test_the_heldout_world_has_the_same_words_and_no_rule_in_common(scale, seed):
    train, heldout = rule_table("train", scale, seed), rule_table("heldout", scale, seed)
    assert set(pc.unique(train["world_id"]).to_pylist()) == {f"rw-{seed}"}
    assert set(pc.unique(heldout["world_id"]).to_pylist()) == {f"rw-{seed}-heldout"}
    for column in ("nl", "fol"):
        assert not pc.any(pc.is_in(heldout[column], train[column].combine_chunks())).as_py()
    columns = "type entity action role environment state trigger_attribute trigger_operator attribute".split()
    columns += ["operator", "amount"]
    both = pa.concat_tables([train.select(columns), heldout.select(columns)])
    assert len(both.group_by(columns).aggregate([])) == len(both)  # whatever verb says it
    for column in ("entity", "action", "environment"):
        assert set(heldout[column].to_pylist()) <= set(train[column].to_pylist())


def test_paper_rules_are_a_part_of_the_full_world_with_the_same_ids():
    paper = {row["id"]: row for row in rule_table("train", "paper").to_pylist()}
    assert all(row["in_paper"] for row in paper.values())
    parts = [(0, 1500), (1_000_000, 1_001_500), (1_877_000, 1_882_500), (4_935_000, 4_936_113)]
    shared = 0
    for start, stop in parts:
        part = rule_table("train", "full", start=start, stop=stop).to_pylist()
        assert [row["id"] for row in part] == list(range(start, stop))
        for row in part:
            assert row["in_paper"] == (row["id"] in paper)
            if row["in_paper"]:
                assert row == paper[row["id"]]
                shared += 1
    assert shared > 4_000


TINY = {"entities": 40, "attributes": 64, "states": 60, "actions": 16, "environments": 16}
FEW = {"entity2attr": 10, "attrchange2attr": 10, "state2attr": 10}


@pytest.mark.parametrize(("change", "message"), CASES["sizes"])
def test_impossible_sizes_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        WorldSizes(**(TINY | FEW | change))


def test_a_world_may_be_full_to_the_last_slot():
    sizes = WorldSizes(**TINY, **WorldSizes(**TINY, **FEW).slots())
    assert len(build_world(1, sizes)) == sum(sizes.rule_counts().values())


# The first words of three streams. Every benchmark ever built depends on them: they never change.
GOLDEN = {
    ("golden",): ["0x86a6071bc32a4ccb", "0xda81f4cc3cd10c8e", "0xa44fa3c2217ef253"],
    ("golden", 0, "train"): ["0x94d058677dd7d8ab", "0xe19e0509b882fd26", "0xc84c30bf9c8603d0"],
    (): ["0xef18a3b007c162e6", "0x9924bec93d39b07a", "0xeb96914800d46ffa"],
}


@pytest.mark.parametrize("key", GOLDEN, ids=str)
def test_first_words_never_change(key):
    assert [hex(word) for word in Stream(*key).words(3)] == GOLDEN[key]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        (("a",), ("a", "")),
        ((0, "x"), ("x", 0)),
        ((-1,), (1,)),
        (("a", "b"), ("a\x1fstr:b",)),
    ],
)
def test_different_keys_give_different_streams(one, other):
    assert Stream(*one).words(4).tolist() != Stream(*other).words(4).tolist()


def splitmix(*values: int) -> int:
    """The finaliser of splitmix64, column by column, in Python's integers."""
    mask, state = 2**64 - 1, 0
    for value in values:
        state = (state + value + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 30_000)), min_size=1, max_size=20))
def test_mix_is_a_function_of_each_row(pairs):
    wide, narrow = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], dtype=np.int16)
    assert mix(7, wide, narrow).tolist() == [splitmix(7, *pair) for pair in pairs]
