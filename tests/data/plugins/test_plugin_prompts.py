"""The prompts that every tool asks: which rules they show, and the options that choose them."""

import pytest
from ruleworld_data.plugins import PLUGINS, TaskOptions, plugin_path, prompt_rows
from ruleworld_data.pools import question_pool
from ruleworld_data.scoring import score_output

from ..cases import question_table, rule_table


@pytest.mark.parametrize("representation", ["nl", "fol"])
@pytest.mark.parametrize("split", ["test", "heldout"])
def test_a_prompt_shows_the_question_and_its_pool(split, representation):
    rules = rule_table("heldout" if split == "heldout" else "train", "tiny")
    text = dict(zip(rules["id"].to_pylist(), rules[representation].to_pylist(), strict=True))
    rows = prompt_rows("multi_hop_3", TaskOptions(split, "tiny", representation=representation, pool_size=20))
    table = question_table("multi_hop_3", split, "tiny").to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in table]
    for row, gold in zip(rows[:5], table, strict=False):
        pool = question_pool(
            rules["id"].to_numpy(), row["id"], gold["gold_rule_ids"], 20, world_id=gold["world_id"]
        )
        assert row["rule_ids"] == pool.tolist() and set(gold["gold_rule_ids"]) <= set(row["rule_ids"])
        shown = row["prompt"].split("Rules:\n")[1].split("\n\n")[0].split("\n")
        assert shown == [text[rule] for rule in pool]
        assert row["prompt"].endswith(f"Question: {gold['question']}\n")
        assert score_output(row["target"], gold["answers"]).strict_match == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"representation": "both"}, "Known: nl, fol"),
        ({"pool_size": "100"}, "pool_size must be a non-negative integer, got '100'"),
        ({"pool_sise": 100}, "unknown option 'pool_sise'; did you mean 'pool_size'"),
    ],
)
def test_bad_options_are_refused_with_words(options, words):
    with pytest.raises(ValueError, match=words):
        TaskOptions.pick(options)


def test_options_of_the_tool_itself_are_left_alone():
    assert TaskOptions.pick({"pretrained": "x", "seed": 1, "pool_size": 7}) == TaskOptions(pool_size=7)


def test_every_plug_in_is_shipped():
    assert all(plugin_path(name).exists() for name in PLUGINS)
    with pytest.raises(ValueError, match="unknown plug-in 'lmeval'; did you mean 'lm-eval'"):
        plugin_path("lmeval")
