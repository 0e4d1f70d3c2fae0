"""The model card: every figure is the log's, and what it says to type loads the adapter."""

import json
import re
from dataclasses import asdict, fields, replace

from dynarule.model_card import model_card
from dynarule.training.recipe import Recipe, paper_recipe

from dynarule import dynarule_config

INFO = dynarule_config(
    384,
    confidence_layer=5,
    base_model_name_or_path="Qwen/Qwen2.5-0.5B",
    base={"model_type": "qwen2"},
    encoder="minilm@1",
    search_token="<search>",
    trainable_token_indices=[151_665],
)
FACTS = {
    "steps": 300,
    "processes": 2,
    "questions": 1200,
    "held_out": 150,
    "families": {"multi_hop": 700, "single_rule": 500},
    "rules": 292,
    "dtype": "bfloat16",
}
TRAINED = {"step": 300, "loss": 1.5, "lm_loss": 1.25, "retrieval_loss": 0.25, "recall_at_1": 0.875}


def measured(step):
    return {
        "step": step,
        "eval_lm_loss": 2.0,
        "eval_retrieval_loss": 300.0 / step,
        "eval_recall_at_1": step / 1000,
    }


def rows(card):
    """The cells of all tables."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in card.splitlines()
        if line[:1] == "|"
    ]


def test_it_says_data_seeds_steps_recipe_and_results():
    recipe = paper_recipe(seed=17)
    card = model_card(INFO, recipe, FACTS, [measured(100), TRAINED, measured(300)])
    table = {row[0]: row[1] for row in rows(card) if len(row) == 2}
    assert table["questions"] == "1,200 (multi_hop 700, single_rule 500)"
    assert (table["rules"], table["held-out questions"], table["processes"]) == ("292", "150", "2")
    assert table["steps"] == "300, 30,000 questions in all"  # 300 x 2 processes x 10 x 5
    assert table["`seed`"].startswith("`17`")
    assert table["`<search>`"] == "behind the header of each step but the first"
    premise = model_card(replace(INFO, search_place="premise"), recipe, FACTS, [TRAINED])
    assert "| `<search>` | behind the premise of each rule that a step applies |" in premise
    values = json.loads(json.dumps(asdict(recipe)))
    for f in fields(Recipe):
        assert json.loads(re.match("`(.*?)` ", table[f"`{f.name}`"])[1]) == values[f.name], f.name
    assert ["100", "0.100", "3.000", "2.000"] in rows(card) and ["300", "0.300", "1.000", "2.000"] in rows(
        card
    )
    assert "loss 1.250, retrieval loss 0.250, Recall@1 among kept rules 0.875" in card
    assert "base_model: Qwen/Qwen2.5-0.5B" in card.split("---")[1]


def test_it_admits_what_was_not_measured():
    facts = FACTS | {"held_out": 0, "families": {}}
    info = replace(INFO, confidence_layer=None, trainable_token_indices=None)
    info.base_model_name_or_path = "./models/tiny"  # of this machine
    card = model_card(info, paper_recipe(stage=1), facts, [])
    assert "Nothing was measured on held-out questions." in card
    assert "run `dynarule confidence --write`" in card
    assert "prepare_search" not in card and "models" not in card and "base_model:" not in card
