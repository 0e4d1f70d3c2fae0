"""The constraints that make every answer unique, checked on the rule tables with sets and dicts."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ruleworld_data.generate import rule_table
from ruleworld_data.spec import WorldSizes
from ruleworld_data.world import build_world


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entity2attr": 2561}, "entity2attr=2561 rules do not fit: this world has room for 2560"),
        ({"attributes": 62}, "multiple of 4 attributes"),
        ({"actions": 15}, "environments must equal actions"),
        ({"states": 47}, r"environments \+ 2 \* actions = 48, got 47"),
        ({"state2attr": -1}, "state2attr must be a non-negative integer, got -1"),
        ({"entity2attr": 1.5}, "entity2attr must be a non-negative integer, got 1.5"),
    ],
)
def test_impossible_sizes_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        WorldSizes(**(TINY | FEW | change))


def test_a_world_may_be_full_to_the_last_slot():
    sizes = WorldSizes(**TINY, **WorldSizes(**TINY, **FEW).slots())
    assert len(build_world(1, sizes)) == sum(sizes.rule_counts().values())
