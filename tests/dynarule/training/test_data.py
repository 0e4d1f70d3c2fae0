"""Tokens, masks and pools of training batches, against the texts they came from."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from dynarule.training.data import Collator, Encoder, encoder_for, place_of, target_text
from dynarule.training.pools import RulePools, TrainingStream
from dynarule.training.recipe import PAPER_MIX

from dynarule import DynaRuleConfig, dynarule_config

ROWS = [
    {
        "question": "What if the fox is wet ?",
        "steps": [
            {"text": "The fox sings .", "rule_ids": [11, 30]},
            {"text": "It has 5 .", "rule_ids": [12]},
        ],
        "answers": ["5", "wood"],
        "family": "multi_hop",
    },
    {
        "question": "How many fins has an owl ?",
        "steps": [{"text": "An owl has 3 fins .", "rule_ids": [30]}],
        "answers": ["3"],
        "family": "single_rule",
    },
]
RULE_ROWS = {str(10 + i): i for i in range(40)}
BAD_ROWS = [*map(json.loads, Path(__file__).with_name("bad_rows.jsonl").read_text().splitlines())]
"""What is changed in a row, and what is said of it."""
PREMISES = [f"premise {i // 4}" for i in range(40)]  # four rules each


@pytest.fixture(scope="module")
def tokenizer(word_tokenizer):
    return word_tokenizer([target_text(row) + row["question"] for row in ROWS])


def batch(tokenizer, size=20, **changes):
    encoder = Encoder(tokenizer, RULE_ROWS, **changes)
    return Collator(encoder, RulePools(40, PREMISES, 0.5, seed=3), size)(list(enumerate(ROWS)))


@pytest.mark.parametrize(("place", "header"), [("before", "<search> [ Step 2"), ("behind", "2 ] <search>")])
def test_a_batch_says_what_the_rows_say(tokenizer, place, header):
    found = batch(tokenizer, search_place=place)
    for b, row in enumerate(ROWS):
        real = found["attention_mask"][b].bool()
        ids = found["input_ids"][b]
        labels = found["labels"][b]
        prompt, answer = found["question_BT"][b], labels != -100
        assert torch.equal(prompt | answer, real) and not (prompt & answer).any()
        words = tokenizer(row["question"] + "\n")["input_ids"]
        assert ids[prompt].tolist() == words
        assert ids[answer].tolist() == [
            *tokenizer(target_text(row, place=place))["input_ids"],
            tokenizer.eos_token_id,
        ]
        assert torch.equal(labels[answer], ids[answer])
        assert (ids[~real] == tokenizer.pad_token_id).all()
        search = [p for p in found["search_BS"][b].tolist() if p >= 0]
        assert search == (ids == tokenizer.convert_tokens_to_ids("<search>")).nonzero().flatten().tolist()
        assert len(search) == len(row["steps"]) - 1
        assert tokenizer.decode(ids).count(header) == len(search)
        for t, step in enumerate(row["steps"]):
            places = [p for p in found["gold_BSG"][b, t].tolist() if p >= 0]
            assert [int(found["pool_M"][p]) for p in places] == [RULE_ROWS[str(i)] for i in step["rule_ids"]]
    assert found["input_ids"].shape[1] % 32 == 0  # few shapes
    assert (found["gold_BSG"][1, 1] == -1).all() and found["gold_BSG"].shape == (2, 2, 2)
    assert not (found["input_ids"] == tokenizer.unk_token_id).any()


def test_without_search_all_gold_is_one_step_s(tokenizer):
    found = batch(tokenizer, search=False)
    assert not (found["input_ids"] == tokenizer.convert_tokens_to_ids("<search>")).any()
    assert found["search_BS"].shape == (2, 0) and found["gold_BSG"].shape == (2, 1, 3)
    assert {int(found["pool_M"][p]) for p in found["gold_BSG"][0, 0]} == {1, 20, 2}


def test_an_opening_search_looks_for_the_first_step_and_the_prompt_for_all(tokenizer):
    found = batch(tokenizer, target=lambda row: "<search>" + target_text(row))
    for b, row in enumerate(ROWS):
        ids = found["input_ids"][b]
        search = [p for p in found["search_BS"][b].tolist() if p >= 0]
        assert search == (ids == tokenizer.convert_tokens_to_ids("<search>")).nonzero().flatten().tolist()
        assert len(search) == len(row["steps"]) and search[0] == found["question_BT"][b].sum()
        sets = [{int(found["pool_M"][p]) for p in each if p >= 0} for each in found["gold_BSG"][b]]
        steps = [{RULE_ROWS[str(i)] for i in step["rule_ids"]} for step in row["steps"]]
        assert sets[: len(steps) + 1] == [set().union(*steps), *steps]
    with pytest.raises(ValueError, match=r"2 steps need 1 <search> tokens, in all but the first .* has 2"):
        batch(tokenizer, target=lambda row: target_text(row) + "<search>")


def test_searches_behind_premises_have_a_rule_each_and_are_not_learned(tokenizer):
    fox = "[Step 1] The fox<search> sings . It<search> has\n[Step 2] It<search> has 5 ."
    written = {ROWS[0]["question"]: fox, ROWS[1]["question"]: "[Step 1] An owl<search> has 3"}
    encoder = Encoder(tokenizer, RULE_ROWS, lambda row: written[row["question"]])
    config = dynarule_config(1)
    encoder = encoder_for(config, tokenizer, list(RULE_ROWS), ROWS, encoder)
    assert (config.search_place, encoder.search_place) == ("premise", "premise")
    assert sorted(tokenizer.convert_ids_to_tokens(config.search_cues)) == ["has", "sings"]
    found = Collator(encoder, RulePools(40, PREMISES, 0.5, seed=3), 20)(list(enumerate(ROWS)))
    search_BT = found["input_ids"] == tokenizer.convert_tokens_to_ids("<search>")
    assert (found["labels"][search_BT] == -100).all()
    answer_T = found["attention_mask"][0].bool() & ~found["question_BT"][0]
    assert (found["labels"][0] != -100).sum() + 3 == answer_T.sum()
    gold = [[{int(found["pool_M"][p]) for p in each if p >= 0} for each in row] for row in found["gold_BSG"]]
    assert gold == [[{1, 20, 2}, {1}, {20}, {2}], [{20}, {20}, set(), set()]]


def test_steps_may_have_their_searches_in_their_own_texts(tokenizer):
    """Where no other code says how: behind the premise of each rule, in all rows; in no step without searches."""
    steps = [
        {"text": "A fox<search> sings", "rule_ids": [11]},
        {"text": "It<search> has 5", "rule_ids": [12]},
    ]
    row = {"question": "How many ?", "steps": steps, "answers": ["5"]}
    config = dynarule_config(1)
    encoder = encoder_for(config, tokenizer, list(RULE_ROWS), [row, row], None)
    text = "[Step 1] A fox<search> sings\n[Step 2] It<search> has 5\n[Answer] \\boxed{5}"
    assert encoder.text(row) == text and config.search_place == "premise"
    assert encoder(row).gold == [[1, 2], [1], [2]]
    assert sorted(tokenizer.convert_ids_to_tokens(config.search_cues)) == ["has", "sings"]
    reading = encoder_for(dynarule_config(1), tokenizer, list(RULE_ROWS), [row], None, search=False)
    assert reading.text(row) == text.replace("<search>", "") and not reading(row).search
    bare = row | {"steps": [step | {"text": step["text"].replace("<search>", "")} for step in steps]}
    with pytest.raises(
        ValueError, match="2 rules of the steps need as many <search>, one behind the premise"
    ):
        encoder(bare)


def test_a_step_without_rules_has_its_search_all_the_same(tokenizer):
    steps = [{"nl": "x", "rule_ids": ids} for ids in ([11], [], [12])]
    row = {"question": "How many ?", "steps": steps, "answers": ["5"]}
    encoder = Encoder(tokenizer, RULE_ROWS, lambda row: "[Step 1] a\n[Step 2]<search> b\n[Step 3]<search> c")
    encoder = encoder_for(dynarule_config(1), tokenizer, list(RULE_ROWS), [row], encoder)
    assert encoder.search_place == "behind" and encoder(row).gold == [[1], [], [2]]


def test_where_search_stands_follows_from_a_text_of_one_s_own(tokenizer):
    own = dict.fromkeys(("2) <search>It", "It is <search>so"), "behind")
    own |= dict.fromkeys(("<search>2) It", "no step"), "before")
    one_line = Encoder(tokenizer, RULE_ROWS, lambda row: "1) The fox. 2) <search>It has 5")
    assert place_of(one_line, ROWS) == "behind"  # the first step asks for nothing
    unwritten = Encoder(tokenizer, RULE_ROWS, lambda row: "1) It <search>so, it <search>is. It <search>has")
    with pytest.raises(ValueError, match=r"once a clause, in lines that begin .* stands behind '1\) It '"):
        encoder_for(dynarule_config(1), tokenizer, list(RULE_ROWS), ROWS[:1], unwritten)
    for line, place in own.items():
        encoder = Encoder(tokenizer, RULE_ROWS, lambda row, line=line: f"1) The fox\n{line} has 5")
        assert place_of(encoder, ROWS) == place
    assert place_of(Encoder(tokenizer, RULE_ROWS, search_place="before"), ROWS) == "before"
    assert DynaRuleConfig(encoder_dim=1).search_place == "before"
    assert dynarule_config(1).search_place == "behind"


def test_pools_hold_gold_once_hard_negatives_and_random_others_shuffled():
    pools = RulePools(40, PREMISES, hard_share=0.5, seed=1)
    pool = pools.draw([4, 9, 4], 12, key=7)
    assert len(pool) == 12 == len(set(pool.tolist())) and {4, 9} <= set(pool.tolist())
    hard = set(pool.tolist()) & {5, 6, 7, 8, 10, 11}
    assert len(hard) >= 5  # half of ten places, or more by chance
    assert np.array_equal(pool, pools.draw([4, 9, 4], 12, key=7))
    assert not np.array_equal(pool, pools.draw([4, 9, 4], 12, key=8))
    assert not np.array_equal(pool, RulePools(40, PREMISES, 0.5, seed=2).draw([4, 9, 4], 12, key=7))
    places = [int(np.flatnonzero(pools.draw([4], 12, key=k) == 4)[0]) for k in range(50)]
    assert len(set(places)) > 8  # gold has no place of its own
    assert sorted(pools.draw([4], 99, 0).tolist()) == list(range(40))
    assert {len(pools.draw([4], (3, 6), k)) for k in range(60)} == {3, 4, 5, 6}
    assert len(pools.draw([0, 4, 8, 12, 16], (3, 6), 1)) in (5, 6)
    with pytest.raises(ValueError, match="3 gold rules but its pool 2"):
        pools.draw([1, 2, 3], 2, 0)


def stream(draws, seed=0, rows=None, mix=PAPER_MIX):
    names = ["single_rule"] * 7 + ["multi_rule_2"] * 11 + ["multi_hop_3"] * 5
    made = [{"subtask": name, "row": i} for i, name in enumerate(names)] if rows is None else rows
    return TrainingStream(made, draws, mix, block=10, seed=seed)


def test_every_batch_has_three_four_and_three_of_ten_in_an_order_of_the_seed():
    """A longer run starts like a shorter one; of a family all questions come before any comes again."""
    draws = [stream(200)[n] for n in range(200)]
    assert [n for n, _ in draws] == list(range(200))
    orders = set()
    for start in range(0, 200, 10):
        kinds = [row["subtask"][:8] for _, row in draws[start : start + 10]]
        assert [kinds.count(kind) for kind in ("single_r", "multi_ru", "multi_ho")] == [3, 4, 3]
        orders.add(tuple(kinds))
    assert len(orders) > 10
    single = [row["row"] for _, row in draws if row["subtask"] == "single_rule"]
    for start in range(0, 49, 7):
        assert sorted(single[start : start + 7]) == list(range(7))
    assert single[:7] != single[7:14]
    order = stream(200).order
    assert np.array_equal(order[:137], stream(137).order)
    assert not np.array_equal(order, stream(200, seed=1).order)
    assert sorted(stream(23, mix=None).order.tolist()) == list(range(23))
    share = np.mean([stream(1000, mix={"single_rule": 1, "multi_rule": 1, "multi_hop": 1}).order < 7])
    assert abs(share - 1 / 3) < 0.01


def test_batches_of_a_step_hold_questions_of_like_length():
    """The same questions in every step, and in batches of 4 of them most padding is gone."""
    random = np.random.default_rng(0)
    rows = [
        {"subtask": "single_rule", "question": "w" * int(random.integers(5, 50)), "steps": [{}] * int(n)}
        for n in random.integers(1, 9, 64)
    ]
    mixed, ordered = (TrainingStream(rows, 96, {"single_rule": 1.0}, 32, 3, way) for way in (False, True))
    for start in range(0, 96, 32):
        assert sorted(mixed.order[start : start + 32]) == sorted(ordered.order[start : start + 32])
    steps = [
        np.array([len(rows[i]["steps"]) for i in each.order]).reshape(-1, 4) for each in (mixed, ordered)
    ]
    padding = [int((4 * batches.max(1) - batches.sum(1)).sum()) for batches in steps]
    assert padding[1] < padding[0] / 4


@pytest.mark.parametrize(("change", "message"), BAD_ROWS)
def test_bad_rows_say_what_is_wrong(tokenizer, change, message):
    row = {name: value for name, value in (ROWS[1] | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        Encoder(tokenizer, RULE_ROWS)(row)


def test_empty_texts_unknown_families_and_missing_search_are_refused(tokenizer, word_tokenizer):
    with pytest.raises(ValueError, match="pass a mix of these"):
        TrainingStream(ROWS, 4, PAPER_MIX)
    with pytest.raises(ValueError, match="family or subtask"):
        TrainingStream([{"question": "?"}], 4, PAPER_MIX)
    with pytest.raises(ValueError, match="reads no token in ' '; load the tokenizer that belongs"):
        Encoder(tokenizer, RULE_ROWS, target=lambda row: " ")(ROWS[1])
    plain = word_tokenizer(["a b"], special=("<pad>", "<eos>", "<unk>"))
    with pytest.raises(ValueError, match="no token '<search>'"):
        Encoder(plain, RULE_ROWS)(ROWS[0])
