"""Instances: functions of configuration and index, answers that follow from the shown pool, refusals."""

import json
import random
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ruleworld_data.environments import EnvConfig, RewardWeights, instance, score
from ruleworld_data.environments.worlds import place_of, world_of
from ruleworld_data.text import parse_rule
from ruleworld_data.verify import solve

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))

ALL_PARTS = RewardWeights(0.3, 0.7, steps=0.2, proved=0.3, format=0.1, search_cost=0.05)
SETTINGS = [
    {},
    {"form": "fol", "pool_size": 20},
    {"form": "fol", "access": "tool", "pool_size": 1_000},
    {"subtasks": ("multi_hop_6", "multi_rule_12"), "pool_size": 400, "rivals": 1},
    {"dials": "crowd=4,conjunction=2", "subtasks": ("multi_hop_3", "multi_hop_4"), "rivals": 0},
    {"dials": "thresholds=true", "subtasks": ("multi_hop_3",), "access": "tags", "seed": 2**63 - 1},
    {"dials": "words=1", "subtasks": ("single_rule", "multi_rule_4"), "access": "tool", "pool_size": 50},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_answers_follow_from_the_pool_and_score_the_maximum(setting):
    config = EnvConfig(reward=ALL_PARTS, **setting)
    for index in range(0, 60, 3):
        made = instance(config, index)
        world, _, row = place_of(config, index)
        pool = world.pool(row, config)
        assert len(set(pool.tolist())) == config.pool_size
        assert solve(made.metadata, world.rules.take(sorted(pool))) == made.metadata["answers"]
        assert score(made.answer, made.metadata) == (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("form", ["nl", "fol"])
def test_the_prompt_shows_the_pool_once_and_nothing_of_the_proof(form):
    config = EnvConfig(form=form, pool_size=50)
    made = instance(config, 9)
    lines = made.prompt.partition("Rules:\n")[2].partition("\n\n")[0].splitlines()
    assert len({parse_rule(form, line) for line in lines}) == len(set(lines)) == 50
    assert made.prompt.endswith(f"Question: {made.metadata['question']}\n")
    assert made.answer.splitlines()[0] not in made.prompt
    looked_up = instance(EnvConfig(form=form, pool_size=50, access="tool"), 9)
    assert looked_up.answer == made.answer and not any(line in looked_up.prompt for line in lines)


def test_an_instance_is_a_function_of_its_index():
    config = EnvConfig(("single_rule",), seed=4, pool_size=30)
    indexes = [0, 1, 1_023, 1_024, 77]
    first = {index: instance(config, index) for index in indexes}
    world_of.cache_clear()
    random.Random(0).shuffle(indexes)
    with ThreadPoolExecutor(4) as threads:
        again = dict(zip(indexes, threads.map(lambda index: instance(config, index), indexes), strict=True))
    assert again == first
    assert all(json.loads(json.dumps(made.metadata)) == made.metadata for made in first.values())
    asked = f"instance(EnvConfig.from_dict({config.to_dict()}), 77)"
    script = f"from ruleworld_data.environments import *; print({asked}.prompt)"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert other.stdout == first[77].prompt + "\n"


def test_no_question_comes_twice_and_no_world_in_two_sequences():
    config, other = EnvConfig(("multi_hop_3", "multi_rule_2"), pool_size=20), EnvConfig(seed=1)
    assert len({instance(config, index).metadata["question"] for index in range(300)}) == 300
    worlds = [{place_of(one, index)[0].world_id for index in range(0, 2_000, 300)} for one in (config, other)]
    assert len(worlds[0]) > 1 and not worlds[0] & worlds[1]


def test_rivals_conclude_about_the_same():
    """Without them the only rule that changes what is asked about gives a small pool away."""

    def rules_about_the_asked(rivals):
        config, found = EnvConfig(("multi_hop_3",), pool_size=60, rivals=rivals), []
        for index in range(40):
            world, _, row = place_of(config, index)
            pool = world.rules.take(sorted(world.pool(row, config)))
            asked = row["queries"][0].split(", ")[1].lower().replace("_", " ")
            rows = pool.select(["attribute", "operator"]).to_pylist()
            found.append(sum(one["attribute"] == asked and one["operator"] is not None for one in rows))
        return sum(found) / len(found)

    assert rules_about_the_asked(0) < 2 < 6 < rules_about_the_asked(1)


@pytest.mark.parametrize("values, said", CASES["configurations"])
def test_a_configuration_that_no_world_satisfies_names_the_dial(values, said):
    with pytest.raises(ValueError, match=said):
        EnvConfig.from_dict(values)


@pytest.mark.parametrize(
    "values",
    [
        *({"reward": odd} for odd in (None, "exact", 5, [1.0])),
        *({"subtasks": odd} for odd in (None, 5, b"single_rule", {"single_rule", "multi_rule_2"}, [["a"]])),
    ],
)
def test_a_value_of_another_type_or_without_an_order_is_named(values):
    for made in (lambda: EnvConfig(**values), lambda: EnvConfig.from_dict(values)):
        with pytest.raises(ValueError, match=r"reward|sub-?task"):
            made()


@pytest.mark.parametrize("access", ["prompt", "tool"])
def test_a_version_words_its_rules_and_states_its_conventions(access):
    old, new = (EnvConfig(("multi_hop_2",), version=v, form="fol", access=access) for v in ("1.1", "1.2"))
    assert "An event fires once" in instance(new, 0).prompt
    assert "An event fires once" not in instance(old, 0).prompt
    counts = {
        config.version: {rule.count(",") for rule in place_of(config, 0)[0].texts("fol") if "=> Has(" in rule}
        for config in (old, new)
    }
    assert counts == {"1.1": {1}, "1.2": {2}}  # Has(Paw, 9), and Has(A, Paw, 9)
