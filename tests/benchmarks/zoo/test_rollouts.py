"""Episodes: what a model asks for stands in its text as the environment's words, and no loss is on them."""

import itertools
import json

import pytest
import torch
from ruleworld_data.environments import EnvConfig, Episode, instance
from ruleworld_data.prompts import parse_template
from rwbench.models import base_folder
from rwbench.zoo import grpo
from rwbench.zoo.golden_episodes import golden_episodes
from rwbench.zoo.rollouts import Lookups
from transformers import AutoTokenizer

BASE = base_folder("tiny")


@pytest.fixture(scope="module")
def asked():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    template = parse_template((BASE / "prompt.toml").read_bytes(), "prompt.toml")
    return tokenizer, template, EnvConfig(**grpo.SEARCHED | {"seed": 5})


def written(lookups, tokenizer, said):
    """Let one row say some tokens; return all tokens of the row."""
    row, own = [0], list(said)
    while own or lookups.waiting[0]:
        scores = torch.zeros(1, len(tokenizer))
        lookups(torch.tensor([row]), scores)
        forced = torch.isinf(scores).any()
        row.append(int(scores.argmax()) if forced else own.pop(0))
    return row[1:]


def test_a_request_is_answered_with_what_the_episode_finds(asked):
    tokenizer, template, config = asked
    record = json.dumps(instance(config, 3).metadata)
    lookups = Lookups(tokenizer, [Episode(record)], template.request)
    line, after = "[Search] A is completely rude\n", "[Step 1]"
    said = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (line, after)]
    row = written(lookups, tokenizer, [*said[0], *said[1]])
    found = Episode(record).search("A is completely rude") + "\n\n"
    assert tokenizer.decode(row) == tokenizer.decode(
        [*said[0], *tokenizer(found, add_special_tokens=False)["input_ids"], *said[1]]
    )
    own = lookups.own[0][: len(row)]
    assert sum(own) == len(said[0]) + len(said[1]) and lookups.episodes[0].searches == 1


def test_one_request_too_many_ends_the_episode(asked):
    tokenizer, template, config = asked
    record = json.dumps(instance(config, 3).metadata | {})
    lookups = Lookups(tokenizer, [Episode(record)], template.request)
    line = tokenizer("[Search] A is rude\n", add_special_tokens=False)["input_ids"]
    row = written(lookups, tokenizer, line * (config.max_searches + 1))
    lookups(torch.tensor([row]), scores := torch.zeros(1, len(tokenizer)))
    assert tokenizer.eos_token_id in (row[-1], int(scores.argmax()))
    assert lookups.episodes[0].searches == config.max_searches


def test_golden_episodes_ask_for_their_rules_and_are_scored_highest(asked):
    tokenizer, template, config = asked
    for row in itertools.islice(golden_episodes(config, itertools.count(0, 64), tokenizer, template), 3):
        own = [token for token, mine in zip(row["input_ids"], row["completion_mask"], strict=True) if mine]
        theirs = [
            token for token, mine in zip(row["input_ids"], row["completion_mask"], strict=True) if not mine
        ]
        lines = tokenizer.decode(own).split("\n")
        assert sum(line.startswith(template.request) for line in lines) >= 2
        assert any("\\boxed{" in line for line in lines) and own[-1] == tokenizer.eos_token_id
        assert template.request not in tokenizer.decode(theirs)
