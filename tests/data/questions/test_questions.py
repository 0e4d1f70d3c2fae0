"""Questions: every answer re-derived from the rules' FOL, every text read back, every proof checked."""

import re

import pytest
from ruleworld_data.spec import SUBTASKS

from ..brute_force import BruteForce, blemish, misread
from ..cases import question_table, rule_table

# Scale, split, seed, every how-manieth question.
SOURCES = [("tiny", "test", 0, 1), ("tiny", "heldout", 5, 1), ("paper", "test", 0, 25)]
SOURCES += [
    pytest.param(("paper", split, 0, 1), marks=pytest.mark.slow)
    for split in ("test", "validation", "heldout")
]


class Source:
    """The rules and the questions of one split."""

    def __init__(self, scale: str, split: str, seed: int, every: int) -> None:
        self.split = split
        rules = rule_table("heldout" if split == "heldout" else "train", scale, seed)
        self.fol = dict(zip(rules["id"].to_pylist(), rules["fol"].to_pylist(), strict=True))
        self.all_rules = BruteForce(self.fol.values())
        tables = (question_table(subtask, split, scale, seed) for subtask in SUBTASKS)
        self.questions = [
            row for table in tables for row in table.take(list(range(0, len(table), every))).to_pylist()
        ]

    def scopes(self):
        """Yield each sub-question: row, facts, query, answer, and the steps that answer it."""
        for row in self.questions:
            alone = len(row["answers"]) == 1
            for i, scope in enumerate(zip(row["facts"], row["queries"], row["answers"], strict=True)):
                yield row, *scope, row["steps"] if alone else [row["steps"][i]]


@pytest.fixture(scope="module", params=SOURCES, ids=lambda source: "-".join(map(str, source)))
def source(request):
    return Source(*request.param)


def test_every_answer_follows_from_all_rules_and_from_its_gold_rules_and_no_fewer(source):
    for row, facts, query, answer, steps in source.scopes():
        assert source.all_rules.answers(facts, query) == {answer}, row["id"]
        gold = [source.fol[rule] for step in steps for rule in step["rule_ids"]]
        assert BruteForce(gold).answers(facts, query) == {answer}, row["id"]
        for i in range(len(gold)):
            assert BruteForce(gold[:i] + gold[i + 1 :]).answers(facts, query) != {answer}, row["id"]


def test_questions_tell_their_facts_and_ask_their_query_in_good_english(source):
    for row in source.questions:
        clauses = (
            row["question"].split("; ") if row["subtask"].startswith("multi_rule") else [row["question"]]
        )
        assert len(clauses) == len(row["facts"]) == len(row["queries"])
        for clause, facts, query in zip(clauses, row["facts"], row["queries"], strict=True):
            assert misread(clause, facts, query) is None, clause
        if len(clauses) > 1:  # one sentence
            assert clauses[-1].startswith("and ") and not re.search(r"[.?]", row["question"][:-1])
        for text in (row["question"], *(step["nl"] for step in row["steps"])):
            assert blemish(text) is None, (blemish(text), text)
