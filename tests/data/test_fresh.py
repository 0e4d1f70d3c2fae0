"""Fresh worlds: answered by their own rules, a function of their number, and not the benchmark's."""

from collections import Counter

from ruleworld_data.fresh import fresh_world
from ruleworld_data.io.schema import QUESTION_SCHEMA, RULE_SCHEMA
from ruleworld_data.spec import SUBTASKS

from .brute_force import BruteForce
from .cases import rule_table

ASKED = {"single_rule": 3, "multi_rule_4": 2, "multi_hop_2": 2, "multi_hop_4": 1}


def test_a_world_answers_its_own_questions_and_is_a_function_of_its_number():
    world, again = (fresh_world(0, 3, ASKED) for _ in range(2))
    assert world.rules.equals(again.rules) and world.questions == again.questions
    assert world.rules.schema == RULE_SCHEMA and world.rules["id"].to_pylist() == [*range(len(world.rules))]
    assert {name: len(table) for name, table in world.questions.items()} == ASKED
    fol, texts = world.rules["fol"].to_pylist(), Counter()
    for subtask, table in world.questions.items():
        assert table.schema == QUESTION_SCHEMA and set(table["subtask"].to_pylist()) == {subtask}
        assert {*table["world_id"].to_pylist(), *world.rules["world_id"].to_pylist()} == {world.world_id}
        for row in table.to_pylist():
            texts[row["question"]] += 1
            solver = BruteForce([fol[rule] for rule in row["gold_rule_ids"]])
            for facts, query, answer in zip(row["facts"], row["queries"], row["answers"], strict=True):
                assert solver.answers(facts, query) == {answer}
    assert set(texts.values()) == {1}


def test_a_single_question_can_be_asked_for():
    """A pool of one sub-question merges with no other."""
    for subtask in SUBTASKS:
        assert len(fresh_world(9, 0, {subtask: 1}).questions[subtask]) == 1


def test_worlds_and_seeds_differ_and_give_no_benchmark_rule_away():
    worlds = [fresh_world(*which, {}) for which in ((0, 0), (0, 1), (1, 0))]
    assert len({world.world_id for world in worlds}) == 3
    rules = [set(world.rules["nl"].to_pylist()) for world in worlds]
    rules.append(set(rule_table("train", "tiny")["nl"].to_pylist()))
    for number, own in enumerate(rules):
        for other in rules[:number]:
            assert len(own & other) < 0.01 * len(own)
