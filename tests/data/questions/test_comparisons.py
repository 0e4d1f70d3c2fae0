"""Comparisons: what they ask, that nothing gives them away, and that scorer and reward read them."""

import re
from collections import Counter

import pytest
from ruleworld_data.environments import EnvConfig, instance, score
from ruleworld_data.scoring import score_output
from ruleworld_data.spec import Dials

from ..brute_force import blemish, misread
from ..cases import question_table, rule_table

COMPARE = Dials(compare=True)
ASKED = {
    "Sum": "total|in all|add up",
    "Difference": "above|apart|minus",
    "Highest": r"(?:highe|numbe)\w+\?|counts\?|count\?",
    "Most": "[cC]reature",
}


def rows(subtask, split="test", **dials):
    return question_table(subtask, split, "tiny", dials=Dials(compare=True, **dials)).to_pylist()


@pytest.mark.parametrize("size", [2, 5])
def test_questions_say_what_is_recorded(size):
    for row in rows(f"compare_{size}", parts=5):
        (facts,), (query,), (answer,) = row["facts"], row["queries"], row["answers"]
        operation, asked = query.split("(", 1)
        clauses = row["question"].split("; ")
        assert len(clauses) == len(row["steps"]) == size and blemish(row["question"]) is None
        kinds = []
        for number, clause in enumerate(clauses, start=1):
            scene = [atom for atom in facts.split(" & ") if re.search(rf"[xy]{number}\b", atom)]
            part = re.findall(rf"Has\(x{number}, \w+, \?\)", asked)
            plain = [re.sub(r"\b([xy])\d", r"\1", text) for text in (" & ".join(scene), *part)]
            assert misread(clause, *plain) is None, clause
            kinds += re.findall(r"(\w+)\([xy]\)", plain[0])
        assert len(set(kinds)) == len(kinds)  # no creature, state or place in two parts
        last = row["question"].rsplit(". ", 1)[1]
        wanted = [name for name, words in ASKED.items() if re.search(words, last)]
        assert wanted[0] == operation if operation != "Most" else wanted[-1] == "Most", last
        assert row["answer_types"] == ["creature" if operation == "Most" else "count"]
        assert size <= row["n_rules"] <= 2 * size and last.count(answer) == (operation == "Most")


@pytest.mark.parametrize("size", [2, 3])
def test_nothing_gives_an_answer_away(size):
    """Winners stand in each place equally often and led at first in half of the cases; numbers are spread."""
    known = rows(f"compare_{size}", "train")
    assert Counter(row["queries"][0].split("(")[0] for row in known) == dict.fromkeys(ASKED, 25)
    places, led, answers, cells = Counter(), 0, Counter(), set()
    for row in known:
        operation, answer = row["queries"][0].split("(")[0], row["answers"][0]
        firsts = [int(re.search(r"Has\(x\d, \w+, (\d+)\)", step["fol"])[1]) for step in row["steps"]]
        if operation == "Most":
            symbol = answer[0].upper() + answer[1:].replace(" ", "_")
            place = int(re.search(rf"{symbol}\(x(\d)\)", row["facts"][0])[1])
            places[place] += 1
            cells.add((row["template_id"], place))
            led += firsts[place - 1] == max(firsts)
        else:
            answers[operation, answer] += 1
    assert max(places.values()) - min(places.values()) <= 1 and len(places) == size
    assert len(cells) > 2 * size  # no wording tells the place
    assert abs(led - 12.5) < size and max(answers.values()) == 2


def test_the_dial_adds_sub_tasks_and_nothing_else():
    for name in ("single_rule", "multi_rule_3", "multi_hop_2"):
        assert question_table(name, "test", "tiny", dials=COMPARE) == question_table(name, "test", "tiny")
    assert rule_table("train", "tiny", dials=COMPARE) == rule_table("train", "tiny")
    assert [str(Dials().reaching(f"compare_{n}")) for n in (2, 6)] == ["compare=true", "parts=6,compare=true"]
    with pytest.raises(ValueError, match="compare needs two parts or more, got parts=1"):
        Dials(parts=1, compare=True)
    with pytest.raises(ValueError, match="compare must be true or false, got 4"):
        Dials(compare=4)


def test_other_words_change_no_answer():
    worded = rows("compare_3", words=1.0)
    for row, other in zip(rows("compare_3"), worded, strict=True):
        assert row["question"] != other["question"]
        assert all(row[name] == other[name] for name in ("answers", "gold_rule_ids", "facts", "queries"))
        if row["answer_types"] == ["creature"]:  # as the question names it
            named = re.split(r"count(?:,|:) ", other["question"])[-1].strip("?.")
            names = re.split(r", | or ", named)
            assert sum(score_output(rf"\boxed{{{name}}}", row["answers"]).exact_match for name in names) == 1


@pytest.mark.parametrize("form", ["nl", "fol"])
def test_a_reward_reads_what_a_comparison_comes_to(form):
    config = EnvConfig(subtasks=("compare_2",), form=form, reward={"steps": 1.0, "exact": 1.0})
    for index in range(12):
        one = instance(config, index)
        assert score(one.answer, one.metadata).reward == 1.0
        last = re.search(r"\[Step 2\].*", one.answer)[0]
        wrong = last.rsplit(" ", 1)[0] + " 99 stony bridge"
        assert score(one.answer.replace(last, wrong), one.metadata).steps == 0.5
