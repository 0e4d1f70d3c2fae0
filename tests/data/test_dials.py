"""The law at every setting: whatever a world's dials, each question has one answer, in any pool of its rules."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from ruleworld_data import spec
from ruleworld_data.fresh import fresh_world
from ruleworld_data.generate import world_of
from ruleworld_data.io import build
from ruleworld_data.spec import SCALES, VERSIONS, Dials, WorldSizes, WorldSpec, subtasks_of
from ruleworld_data.verify import verify
from ruleworld_data.verify.answers import AnswerChecker
from ruleworld_data.verify.rulebase import parse_rule_table
from ruleworld_data.verify.rules import check_constraints
from ruleworld_data.verify.run import SOLVERS
from ruleworld_data.verify.scan import GivenStep, SubQuestion
from ruleworld_data.world import drawing

from .brute_force import BruteForce, blemish, misread
from .cases import asking_few, question_table

ALL = Dials(hops=8, parts=5, crowd=5, conjunction=2, thresholds=True, compare=True, exceptions=2)
SETTINGS, SOLVED = 320, Path(__file__).with_name("settings.txt")
QUICK = [
    Dials(hops=6, parts=1, crowd=9, thresholds=True),
    Dials(hops=2, parts=1, exceptions=1),
    Dials(hops=5, parts=2, conjunction=2, thresholds=True, compare=True, exceptions=2, words=1.0),
    Dials(hops=4, parts=1, conjunction=2, unknown=True, words=0.5),
]


@pytest.fixture
def small(monkeypatch):
    """Make the two smaller scales ask few questions."""
    for scale in ("tiny", "paper"):
        monkeypatch.setitem(SCALES, scale, asking_few(scale, 15))
    spec.world._turned.cache_clear()
    yield
    spec.world._turned.cache_clear()


def drawn_setting(number: int) -> WorldSpec:
    """A setting by its number, of all that a tiny world allows."""
    draw = random.Random(number)
    seed = draw.choice([draw.randrange(100), draw.randrange(2**63)])
    dials = Dials(
        hops=draw.randint(1, 8),
        parts=draw.randint(1, 8),
        conjunction=draw.randint(1, 2),
        thresholds=draw.random() < 0.5,
        exceptions=(levels := draw.randint(0, 2)),
        unknown=not levels and draw.random() < 0.6,
    )
    crowd, compare = draw.choice([None, *range(4, 15)]), dials.parts > 1 and draw.random() < 0.5
    words = draw.choice([0.0, 0.3, 1.0])
    version = VERSIONS[number % 4 > 0]  # three in four are of data 1.2
    return WorldSpec(
        "tiny", "train", seed, version, replace(dials, crowd=crowd, compare=compare, words=words)
    )


def failures(folder: Path, setting: WorldSpec, solvers=("executor", "clingo")) -> dict[str, list[str]]:
    """Build a setting and verify it; return what failed."""
    build(folder, setting.scale, setting.seed, version=setting.version, dials=setting.dials)
    report = verify(folder, solvers=solvers)
    assert not any(check.skipped for check in report.checks) or solvers != ("executor", "clingo")
    assert report["C9_full_executor"].checked > 50
    return {check.name: check.examples for check in report.checks if check.failures}


@pytest.mark.parametrize("dials", QUICK, ids=lambda dials: ",".join(dials.to_dict()))
def test_settings_verify(dials, tmp_path, small):
    assert failures(tmp_path / "build", WorldSpec("tiny", seed=11, version="1.2", dials=dials)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_settings_at_random_verify(number, tmp_path, small, monkeypatch):
    """Whole builds."""
    monkeypatch.setitem(SCALES, "tiny", replace(SCALES["tiny"], unit_pool=50))  # enough for eight parts
    setting = drawn_setting(number)
    try:
        assert failures(tmp_path / "build", setting) == {}
    except ValueError as error:  # too few chains for a split, in a world of 16 actions
        assert f"seed {setting.seed} and dials {setting.dials}: " in str(error), setting


def solved(number):
    """Solve a world of a setting; return how many rules and parts of questions it has, as a line, or what failed.

    Each part has the same answer from its gold rules and from all, by both solvers, and needs each gold rule.
    """
    setting, parts = drawn_setting(number), []
    few = dict.fromkeys(subtasks_of(setting.dials), 4)
    world = fresh_world(setting.seed, 0, few, version=setting.version, dials=setting.dials)
    for row in chain.from_iterable(table.to_pylist() for table in world.questions.values()):
        steps = [GivenStep(tuple(step.pop("rule_ids")), **step) for step in row["steps"]]
        columns = (row[name] for name in ("facts", "queries", "answers", "answer_types"))
        for place, part in enumerate(zip(*columns, strict=True)):
            proof = steps if len(row["queries"]) == 1 else [steps[place]]
            parts.append((SubQuestion(world.world_id, *part, tuple(proof), row["id"]), False))
    base = parse_rule_table(world.rules)
    report = AnswerChecker(base, SOLVERS).check(parts)
    check_constraints(base, report)
    solvings = [report[f"C9_{pool}_{solver}"] for pool in ("gold", "full") for solver in SOLVERS]
    assert {check.checked for check in solvings} == {len(parts)}
    failed = [check.examples for check in report.checks if check.failures]
    return failed or f"{number} {len(base)} {len(parts)}"


@pytest.mark.slow
@pytest.mark.parametrize("logged", SOLVED.read_text().splitlines()[1:])
def test_both_solvers_agree_at_every_logged_setting(logged):
    assert solved(int(logged.split()[0])) == logged


def test_settings_at_random_have_every_value_of_every_dial():
    turned = (drawn_setting(number).dials.to_dict().items() for number in range(SETTINGS))
    tried = Counter(f"{name}={value}" for values in turned for name, value in values)
    assert len(tried) == 33 and min(tried.values()) >= 5


@pytest.mark.parametrize(
    ("dials", "subtasks", "count"),
    [(replace(ALL, crowd=None), subtasks_of(ALL)[1:], 4), (Dials(thresholds=True), ["multi_hop_2"], 48)],
    ids=["deep", "states of counts"],
)
def test_an_independent_solver_agrees(dials, subtasks, count):
    """Regular expressions over the FOL of a small world: the same answer from all rules and from the gold ones."""
    states, world = [], fresh_world(5, 0, dict.fromkeys(subtasks, count), dials=dials)
    fol = world.rules["fol"].to_pylist()
    whole = BruteForce(fol)
    for table in world.questions.values():
        for row in table.to_pylist():
            gold = row["gold_rule_ids"]
            for facts, query, answer in zip(row["facts"], row["queries"], row["answers"], strict=True):
                assert whole.answers(facts, query) == {answer}
                assert BruteForce([fol[i] for i in gold]).answers(facts, query) == {answer}
            if row["subtask"].startswith("multi_hop"):
                rests = [[fol[i] for i in gold if i != left] for left in gold]
                assert all(BruteForce(rest).answers(facts, query) != {answer} for rest in rests)
                assert misread(row["question"], facts, query) is None and blemish(row["question"]) is None
            if row["skeleton"] == "entity2attr>count2state":
                states.append(answer)
                assert row["answer_types"] == ["state"] and query.startswith("State(x, ?, Has, ")
    if subtasks == ["multi_hop_2"]:
        assert len(states) > 5 and len(set(states)) > 1  # more and fewer


# One defect at a time in how a world is drawn or asked about: verify must name it.


def broken(tmp_path, seed):
    dials = Dials(parts=2, conjunction=2, thresholds=True)
    return failures(tmp_path / "build", WorldSpec("tiny", seed=seed, dials=dials), ("executor",))


def test_one_colour_too_few(tmp_path, small, monkeypatch):
    """Conjunctions and thresholds share drivers; no question meets both, since none is asked of a kind there."""
    turned = WorldSizes.turned
    monkeypatch.setattr(WorldSizes, "turned", lambda self, dials: replace(turned(self, dials), colours=3))
    assert broken(tmp_path, 9001).keys() == {"C5"}


def test_kinds_whose_counts_are_not_looked_at(tmp_path, small, monkeypatch):
    """Questions that start with a change ask creatures of a kind for what their thresholds change as well."""
    monkeypatch.setattr(drawing, "_below", lambda drivers, levels: np.empty(0, dtype=np.int64))
    failed = broken(tmp_path, 9006)
    assert "C9_full_executor" in failed and "C5" not in failed


# Sizes and what is asked.


@pytest.mark.parametrize("scale", ["tiny", "paper"])
@pytest.mark.parametrize("crowd", [4, 11])
def test_a_crowd_is_exactly_so_many(scale, crowd):
    """In the whole world, in the paper's part of it, for states and for conjunctions that can fire."""
    dials = replace(ALL, crowd=crowd, hops=4)
    whole = "full" if scale == "paper" else scale
    for name in {scale, whole}:
        blocks = world_of(WorldSpec(name, dials=dials)).blocks
        plain = ~np.isin(blocks["state2attr"]["attribute"], blocks["exception"]["attribute"])
        per_state = np.bincount(blocks["state2attr"]["state"][plain], minlength=1664)
        for led_to in ("env2state", "action2state", "count2state"):
            assert set(per_state[blocks[led_to]["state"]].tolist()) == {crowd}
        both = blocks["place_state2attr"]
        pairs = Counter(zip(both["environment"].tolist(), both["state"].tolist(), strict=True))
        columns = (blocks["action2state"][name].tolist() for name in ("action", "role", "state"))
        act = {action: state for action, role, state in zip(*columns, strict=True) if role}
        columns = (blocks["action2env"][name].tolist() for name in ("action", "environment"))
        entered = zip(*columns, strict=True)
        fire = {(place, act[action]) for action, place in entered}
        assert {pairs[pair] for pair in fire} == {crowd}
        decoys = sum(count for pair, count in pairs.items() if pair not in fire)
        assert decoys == crowd * len(fire)
        places, states = ({pair[i] for pair in fire} for i in (0, 1))
        assert all(place in places and state in states for place, state in pairs)


def test_a_crowd_that_does_not_fit_names_its_limits():
    for crowd in (64, 3):
        limits = r"crowd must be from 4 to 14 in a world of 16 actions and 64 attributes in 2 levels"
        with pytest.raises(
            ValueError, match=rf"{limits}.* got {crowd}; use a larger scale or turn other dials back"
        ):
            WorldSpec("tiny", dials=Dials(crowd=crowd))
    with pytest.raises(ValueError, match="crowd must be from 32 to"):
        WorldSizes(2, 8, 6, 2, 2, 1, 1, 1).turned(Dials(conjunction=2))


def test_a_world_prints_how_its_dials_stand():
    world = world_of(WorldSpec("tiny", dials=Dials(exceptions=2, words=0.5)))
    rows = [re.findall(r"\w[^|]*\b", line) for line in str(world).splitlines()[4:]]
    assert [name for name, *_ in rows] == [*vars(Dials())]
    assert rows[2] == ["crowd", "1 to 64", "as it falls", "as it falls"] and rows[-1][-2:] == ["0.0", "0.5"]
    assert [str(world_of(v)).partition("\n")[0] for v in ("1.2", 1.2)] == ["World rw-0: 100,235 rules"] * 2
    with pytest.raises(ValueError, match=r"unknown version '1.3'; did you mean '1.2'"):
        world_of("1.3")


def test_each_number_of_exceptions_is_asked_as_often():
    dials = Dials(hops=5, exceptions=2)
    kinds = world_of(WorldSpec("paper", dials=dials)).names.entity
    for hops in range(1, dials.hops + 1):
        rows = question_table(f"exceptions_{hops}", "test", dials=dials).to_pylist()
        asked = Counter(row["skeleton"].count("+exception") for row in rows)
        parts = 3 if hops > 1 else 2  # a state alone tells of no place
        assert sorted(asked) == list(range(parts)) and max(asked.values()) - min(asked.values()) <= 5
        assert {row["n_hops"] for row in rows} == {hops} == {len(row["steps"]) for row in rows}
        assert all(
            len(row["gold_rule_ids"]) == hops + 1 + row["skeleton"].count("+exception") for row in rows
        )
        for row in rows:
            text = " ".join(step["nl"] for step in row["steps"])
            assert text.count("does not hold") == row["skeleton"].count("+exception")
            assert any(kind in row["question"] for kind in kinds)
