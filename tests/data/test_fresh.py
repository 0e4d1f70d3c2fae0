"""Fresh worlds: answered by their own rules, small, and a function of their number."""

from collections import Counter

import pytest
from ruleworld_data.fresh import WORLDS_PER_CONTINENT, fresh_worlds
from ruleworld_data.generate import rule_table
from ruleworld_data.io.schema import QUESTION_SCHEMA, RULE_SCHEMA

from .brute_force import BruteForce

ASKED = {"single_rule": 3, "multi_rule_4": 2, "multi_hop_2": 2, "multi_hop_4": 1}


@pytest.fixture(scope="module")
def worlds():
    return list(fresh_worlds(0, 70, ASKED, n_rules=100))


def test_worlds_are_as_large_as_asked_and_answer_their_own_questions(worlds):
    assert len(worlds) == 70
    texts = [(w.world_id, text) for w in worlds for text in w.questions["question"].to_pylist()]
    assert len(set(texts)) == len(texts)
    for world in worlds:
        assert world.rules.schema == RULE_SCHEMA and world.questions.schema == QUESTION_SCHEMA
        rules = dict(zip(world.rules["id"].to_pylist(), world.rules["fol"].to_pylist(), strict=True))
        assert len(world.rules) == len(rules) == 100
        assert Counter(world.questions["subtask"].to_pylist()) == ASKED
        for table in (world.rules, world.questions):
            assert set(table["world_id"].to_pylist()) == {world.world_id}
        executor = BruteForce(rules.values())
        for row in world.questions.to_pylist():
            assert set(row["gold_rule_ids"]) <= set(rules)
            for facts, query, answer in zip(row["facts"], row["queries"], row["answers"], strict=True):
                assert executor.answers(facts, query) == {answer}


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


def test_continents_and_seeds_differ_and_give_no_benchmark_rule_away(worlds):
    assert len({world.world_id for world in worlds}) == 2
    assert worlds[WORLDS_PER_CONTINENT - 1].world_id != worlds[WORLDS_PER_CONTINENT].world_id
    texts = [set(world.rules["nl"].to_pylist()) for world in worlds]
    other = set(next(fresh_worlds(1, 1, ASKED, n_rules=100)).rules["nl"].to_pylist())
    assert len(other & texts[0]) <= 2 and len(texts[64] & texts[0]) <= 2
    benchmark = set(rule_table("train", "tiny")["nl"].to_pylist())
    assert sum(len(own & benchmark) for own in texts) < 0.01 * 100 * len(worlds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"questions": {"multi_hop": 1}}, "unknown sub-task 'multi_hop'; did you mean"),
        ({"n_rules": 2}, "n_rules must be between .* gold rules"),
        ({"n_rules": 1_985}, "1984, the rules there are, got 1985"),
        ({"questions": {"multi_hop_4": 2_000}}, "questions wanted, but this world has only"),
        *(({"questions": {"multi_hop_2": wrong}}, "non-negative integer") for wrong in (-1, True, 1.5)),
    ],
)
def test_impossible_worlds_are_refused(changes, message):
    arguments = {"seed": 0, "count": 1, "questions": ASKED} | changes
    with pytest.raises(ValueError, match=message):
        list(fresh_worlds(**arguments))
