"""The reward: parts by hand, any text, other versions."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.environments import EnvConfig, Episode, RewardWeights, instance, score

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))

RECORD = instance(EnvConfig(("multi_hop_3",)), 0).metadata | {
    "answers": ["17", "dungeon"],
    "conclusions": [
        ["in", "", "", "dungeon"],
        ["is", "", "", "completely", "sleepy"],
        ["change", "minus", "3", "hollow", "tooth"],
        ["has", "", "17", "hollow", "tooth"],
    ],
    "gold_rule_ids": [1, 2, 3],
}


def scored(answer, searches=0, **weights):
    reward = {**vars(RewardWeights(**weights))}
    return score(answer, RECORD | {"config": RECORD["config"] | {"reward": reward}}, searches)


@pytest.mark.parametrize("answer, exact, strict, form", CASES["answers"])
def test_answers_and_form(answer, exact, strict, form):
    found = scored(answer)
    assert (found.exact, found.strict, found.format, found.reward) == (exact, strict, form, exact)
    mixed = scored(answer, exact=0.2, strict=0.5, format=0.1)
    assert mixed.reward == pytest.approx((0.2 * exact + 0.5 * strict + 0.1 * form) / 0.8)


@pytest.mark.parametrize("line, text, right", [*CASES["steps"], (1, "dungeon " * 100, False)])
def test_a_step_ends_in_what_follows(line, text, right):
    lines = "\n".join(f"[Step {i}] {text if i == line else 'no'}" for i in range(1, 5))
    assert scored(lines, steps=1).steps == 0.25 * right
    assert scored(lines, exact=0.5, steps=0.5).reward == 0.125 * right


def test_steps_count_at_their_number_and_the_first_line_of_one():
    right = ["the dungeon", "completely sleepy", "loses 3 hollow teeth", "17 hollow teeth: 17"]
    lines = [f"[Step {i}] {text}" for i, text in enumerate(right, 1)]
    assert scored("\n".join(lines), steps=1).steps == 1
    assert scored("\r\n".join(reversed(lines)), steps=1).steps == 1
    assert scored("\n".join(f"[Step {i}] {text}" for i, text in enumerate(right)), steps=1).steps == 0
    assert scored("\n".join(["[Step 1] the bridge", *lines]), steps=1).steps == 0.75
    assert scored(" ".join(lines), steps=1).steps <= 0.25


def test_searches_cost_beyond_one_for_each_gold_rule():
    perfect = r"\boxed{17, dungeon}"
    rewards = [scored(perfect, n, search_cost=0.25).reward for n in (0, 3, 4, 6, 8, 100)]
    assert rewards == [1, 1, 0.75, 0.25, 0, 0]
    assert scored(r"\boxed{2, 3}", 5, search_cost=0.25).reward == 0
    assert scored(perfect, 100).reward == 1
    for count in (-1, float("nan"), "3", None, True):
        with pytest.raises(ValueError, match="searches must be"):
            scored(perfect, count)


LIKE_ANSWERS = st.text(r"\boxed{}[Step 1]0,17dungeon <>$" + "\ud800\x00", max_size=200)


@given(st.text() | st.binary() | st.none() | st.lists(st.text()) | LIKE_ANSWERS)
def test_anything_is_scored(answer):
    assert 0 <= scored(answer, exact=0.3, strict=0.2, steps=0.3, format=0.2).reward <= 1


@pytest.mark.parametrize(
    "metadata",
    ["", "null", "[]", "{", {}, {"schema": "ruleworld-environment/0"}, "[" * 100_000]
    + [
        {name: value for name, value in RECORD.items() if name != left}
        for left in ("answers", "config", "index")
    ]
    + [
        RECORD | {"config": config}
        for config in (None, {}, {"reward": {"exact": 0}}, {"reward": {"exact": -5}})
    ]
    + [RECORD | {"conclusions": value} for value in (None, [], [["is"]], [["is", "", None]])]
    + [RECORD | {"gold_rule_ids": None}, RECORD | {"config": RECORD["config"] | {"version": "1.0"}}],
    ids=lambda metadata: repr(metadata)[:20],
)
def test_a_record_of_another_version_or_a_part_of_one_is_refused(metadata):
    for use in (lambda: score("", metadata), lambda: Episode(metadata)):
        with pytest.raises(ValueError, match="metadata"):
            use()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: re.sub(r"[^\n]*\Z", lambda last: last[0].upper().replace("BOXED", "boxed"), text),
        lambda text: text.replace("{", r"{$\text{").replace("}", "}$}"),
        lambda text: f"Let me think about 12 and the bridge.\n{text}",
        lambda text: f"{text}.\n\n".replace("\n", "\r\n"),
        str.encode,
    ],
)
def test_changes_that_keep_the_meaning_keep_the_score(change):
    weights = RewardWeights(exact=0.4, strict=0.2, steps=0.2, format=0.2)
    config = EnvConfig(("multi_hop_3", "multi_rule_4"), access="tool", reward=weights)
    for index in range(8):
        made = instance(config, index)
        for answer in (made.answer, made.answer.splitlines()[-1]):
            assert score(change(answer), made.metadata) == score(answer, made.metadata)
        assert score(made.answer, json.dumps(made.metadata)) == score(made.answer, made.metadata)
