"""The curriculum: it follows a pupil into the band, goes on from JSON, and gives no instance twice."""

import json
import random

import pytest
from ruleworld_data.environments import AdaptiveCurriculum, EnvConfig

LADDERS = {"hops": (1, 2, 3, 4), "pool_size": (30, 100, 300), "parts": (1, 2)}


def play(curriculum, skill, rounds, seed=0):
    """A pupil whose chance of success falls with every level above its skill."""
    die, seen = random.Random(seed), []
    for _ in range(rounds):
        level = len(curriculum.history)
        chance = 1 / (1 + 2.0 ** (2 * (level - skill)))
        curriculum.update([float(die.random() < chance) for _ in range(32)])
        seen.append(level)
    return seen


def test_it_settles_where_the_pupil_succeeds_as_often_as_asked():
    for skill in (0.5, 2, 4):
        levels = play(AdaptiveCurriculum(ladders=LADDERS, window=64), skill, 200)[100:]
        assert abs(sum(levels) / len(levels) - skill) < 1
    better = play(AdaptiveCurriculum(ladders=LADDERS, window=64), 99, 100)
    assert better[-1] == 3 + 2 + 1, "every dial at its end"
    assert play(AdaptiveCurriculum(ladders=LADDERS, window=64), -9, 50)[-1] == 0


def test_it_goes_on_from_json_as_if_nothing_had_stopped():
    whole, first = (AdaptiveCurriculum(EnvConfig(seed=3), LADDERS, (0.3, 0.6), 50) for _ in range(2))
    play(whole, 2, 7, seed=1)
    play(first, 2, 7, seed=1)
    again = AdaptiveCurriculum.from_dict(json.loads(json.dumps(first.to_dict())))
    assert play(whole, 2, 60, seed=2) == play(again, 2, 60, seed=2)
    assert whole.to_dict() == again.to_dict() and whole.config == again.config


def test_dials_turn_in_turns_and_the_last_one_back():
    curriculum = AdaptiveCurriculum(ladders=LADDERS, window=2)
    tasks = [curriculum.config.subtasks]
    for reward in (1.0, 1.0, 1.0, 1.0, 0.0):
        assert curriculum.update([reward, reward])
        tasks.append((*curriculum.config.subtasks, curriculum.config.pool_size))
    assert tasks == [
        ("single_rule",),
        ("multi_hop_2", 30),
        ("multi_hop_2", 100),
        ("multi_hop_2", "multi_rule_4", 100),
        ("multi_hop_3", "multi_rule_4", 100),
        ("multi_hop_2", "multi_rule_4", 100),
    ]
    assert not curriculum.update([0.5, 0.5]), "in the band nothing turns"
    assert not curriculum.update([1.0]), "nor before a window ends"


def test_instances_are_new_ones():
    curriculum = AdaptiveCurriculum(
        ladders={"pool_size": (30, 40)}, base=EnvConfig(("single_rule",)), window=3
    )
    made = []
    for _ in range(4):
        made += [curriculum.next() for _ in range(3)]
        curriculum.update([1.0] * 3)
    assert [one.metadata["index"] for one in made] == list(range(12))
    assert [one.metadata["config"]["pool_size"] for one in made] == [30] * 3 + [40] * 9
    assert len({one.metadata["question"] for one in made}) == 12


def test_a_dial_that_no_world_satisfies_is_passed_over():
    curriculum = AdaptiveCurriculum(
        EnvConfig(("multi_hop_3",)), {"crowd": (None, 60), "pool_size": (30, 40)}, window=1
    )
    assert curriculum.update([1.0]) and curriculum.history == ["pool_size"]
    assert not curriculum.update([1.0])


def test_bad_options_and_what_is_no_state_are_refused():
    for values, said in (
        ({"ladders": {"pool": (1,)}}, "unknown dial 'pool'"),
        ({"ladders": {"hops": ()}}, "every ladder needs a value"),
        ({"band": (0.7, 0.4)}, "band must be two rewards"),
        ({"window": 0}, "window must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=said):
            AdaptiveCurriculum(**values)
    state = AdaptiveCurriculum(ladders=LADDERS).to_dict()
    for wrong in (
        {},
        {"state": 3},
        state | {"ladders": {"hops": []}},
        state | {"state": state["state"] | {"history": ["hops"] * 9}},
        state | {"state": state["state"] | {"history": ["crowd"]}},
    ):
        with pytest.raises(ValueError):
            AdaptiveCurriculum.from_dict(wrong)
    with pytest.raises(ValueError, match="rewards must be"):
        AdaptiveCurriculum(ladders=LADDERS).update([2.0])
