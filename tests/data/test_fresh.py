"""Fresh worlds: answered by their own rules, small, and a function of their number."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from ruleworld_data.fresh import WORLDS_PER_CONTINENT, fresh_worlds
from ruleworld_data.generate import rule_table
from ruleworld_data.io.schema import QUESTION_SCHEMA, RULE_SCHEMA
from ruleworld_data.spec import WorldSizes

BruteForce = runpy.run_path(str(Path(__file__).with_name("brute_force.py")))["BruteForce"]
ASKED = {"single_rule": 3, "multi_rule_4": 2, "multi_hop_2": 2, "multi_hop_4": 1}


@pytest.fixture(scope="module")
def worlds():
    return list(fresh_worlds(0, 70, ASKED, n_rules=100))


def test_worlds_are_as_large_as_asked(worlds):
    assert len(worlds) == 70
    for world in worlds:
        assert world.rules.schema == RULE_SCHEMA and world.questions.schema == QUESTION_SCHEMA
        assert len(world.rules) == len(set(world.rules["id"].to_pylist())) == 100
        subtasks = world.questions["subtask"].to_pylist()
        assert {subtask: subtasks.count(subtask) for subtask in subtasks} == ASKED
        assert set(world.rules["world_id"].to_pylist()) == {world.world_id}
        assert set(world.questions["world_id"].to_pylist()) == {world.world_id}


def test_their_own_rules_answer_their_questions(worlds):
    for world in worlds:
        rules = dict(zip(world.rules["id"].to_pylist(), world.rules["fol"].to_pylist(), strict=True))
        executor = BruteForce(rules.values())
        for row in world.questions.to_pylist():
            assert set(row["gold_rule_ids"]) <= set(rules)
            for facts, query, answer in zip(row["facts"], row["queries"], row["answers"], strict=True):
                assert executor.answers(facts, query) == {answer}


def test_no_question_is_asked_twice(worlds):
    texts = [(w.world_id, text) for w in worlds for text in w.questions["question"].to_pylist()]
    assert len(set(texts)) == len(texts)


def test_a_world_is_a_function_of_its_number(worlds):
    for first, count in ((0, 2), (1, 1), (62, 4), (69, 1)):
        again = list(fresh_worlds(0, count, ASKED, n_rules=100, first=first))
        for world, known in zip(again, worlds[first : first + count], strict=True):
            assert world.world_id == known.world_id
            assert world.rules.equals(known.rules) and world.questions.equals(known.questions)


def test_rules_are_in_no_order(worlds):
    """Gold rules are spread over the world, and ids do not ascend."""
    places = []
    for world in worlds:
        ids = world.rules["id"].to_pylist()
        assert ids != sorted(ids)
        gold = {rule for row in world.questions["gold_rule_ids"].to_pylist() for rule in row}
        places += [ids.index(rule) for rule in gold]
    assert abs(sum(places) / len(places) - 49.5) < 5 * 28.9 / len(places) ** 0.5


def test_continents_and_seeds_differ(worlds):
    assert len({world.world_id for world in worlds}) == 2
    assert worlds[WORLDS_PER_CONTINENT - 1].world_id != worlds[WORLDS_PER_CONTINENT].world_id
    other = next(fresh_worlds(1, 1, ASKED, n_rules=100))
    for strange in (other, worlds[64]):
        common = set(strange.rules["nl"].to_pylist()) & set(worlds[0].rules["nl"].to_pylist())
        assert len(common) <= 2


def test_no_benchmark_rule_is_given_away(worlds):
    rules = set(rule_table("train", "tiny")["nl"].to_pylist())
    fresh = [text for world in worlds for text in world.rules["nl"].to_pylist()]
    assert sum(text in rules for text in fresh) < 0.01 * len(fresh)


def test_worlds_may_hold_every_rule_or_no_question():
    (whole,) = fresh_worlds(3, 1, {"single_rule": 1}, n_rules=1_984)
    assert sorted(whole.rules["id"].to_pylist()) == list(range(1_984))
    (empty,) = fresh_worlds(3, 1, {}, n_rules=20)
    assert (len(empty.rules), len(empty.questions)) == (20, 0)
    assert list(fresh_worlds(3, 0, ASKED)) == []


def test_other_sizes():
    sizes = WorldSizes(
        entities=20,
        attributes=32,
        states=40,
        actions=8,
        environments=8,
        entity2attr=300,
        attrchange2attr=24,
        state2attr=200,
    )
    world = next(fresh_worlds(0, 1, {"multi_hop_3": 2}, n_rules=50, sizes=sizes))
    assert len(world.rules) == 50 and len(world.questions) == 2


@pytest.mark.parametrize("width", [2, 3, 8])
def test_none_of_a_parallel_sub_task(width):
    world = next(fresh_worlds(0, 1, {f"multi_rule_{width}": 0}, n_rules=50))
    assert len(world.questions) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"questions": {"multi_hop": 1}}, "unknown sub-task 'multi_hop'; did you mean"),
        ({"n_rules": 2}, "n_rules must be between .* gold rules"),
        ({"n_rules": 1_985}, "1984, the rules there are, got 1985"),
        ({"questions": {"multi_hop_4": 2_000}}, "questions wanted, but this world has only"),
    ],
)
def test_impossible_worlds_are_refused(changes, message):
    arguments = {"seed": 0, "count": 1, "questions": ASKED} | changes
    with pytest.raises(ValueError, match=message):
        list(fresh_worlds(**arguments))


@pytest.mark.parametrize("wrong", [{"single_rule": -1}, {"multi_hop_2": True}, {"multi_hop_2": 1.5}])
def test_counts_that_are_not_counts_are_refused(wrong):
    with pytest.raises(ValueError, match="non-negative integer"):
        next(fresh_worlds(0, 1, wrong))
