"""The rule books of the real world: what a question states derives its answer, by its gold rules and by no others.

Forward chaining over the sentences themselves, which reads no code of the packages.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOKS = {
    "library": ROOT / "dynarule/src/dynarule/example/library",
    **{
        name: ROOT / "benchmarks/src/rwbench/rulebooks" / name
        for name in ("clinic", "parcel_depot", "pool", "theatre")
    },
}
SUBJECT = re.compile(r"^the \w+ (?:is |was )?")


@pytest.fixture(params=BOOKS)
def book(request):
    """Premise and conclusion of each rule, and the questions with their gold rules."""
    lines = (BOOKS[request.param] / "rules.txt").read_text(encoding="utf-8").splitlines()
    rules = [re.fullmatch(r"If ([^,.]+(?:\.\d[^,.]*)?), ([^,.]+)\.", line) for line in lines]
    assert all(rules), lines[rules.index(None)]
    text = (BOOKS[request.param] / "questions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        assert all(len(step["rule_ids"]) == 1 for step in row["steps"]), row
        row["gold"] = [int(step["rule_ids"][0]) for step in row["steps"]]
        row["parallel"] = row["family"] == "multi_rule"
    return [rule.groups() for rule in rules], rows


def fired(given: list[str], rules: dict[int, tuple[str, str]]) -> dict[int, int]:
    """Each rule that fires, with the depth at which it first does: 1 from what is given."""
    known, depths = set(given), {}
    for depth in range(1, len(rules) + 1):
        now = [i for i, (premise, _) in rules.items() if i not in depths and premise in known]
        if not now:
            break
        depths |= dict.fromkeys(now, depth)
        known |= {rules[i][1] for i in now}
    return depths


def says(text: str, words: str) -> bool:
    """Whether the words follow on each other in the text, as whole words: 5 is not in 5:55."""
    return f" {words} " in f" {re.sub(r'[.,?](?= |$)', '', text)} "


def test_ten_questions_of_each_number_of_steps(book):
    rules, rows = book
    assert len({row["question"] for row in rows}) == len(rows)
    assert Counter(len(row["steps"]) for row in rows) == {1: 10, 2: 10, 3: 10}
    assert len({i for row in rows for i in row["gold"]}) <= len(rules) - 4  # the others are to be passed over
    # About a third state their premise in other words, and no one guess is often right.
    premises = [(row["question"], SUBJECT.sub("", row["given"][0], count=1)) for row in rows]
    assert 8 <= sum(premise.lower() not in question.lower() for question, premise in premises) <= 13
    assert max(Counter(answer for row in rows for answer in row["answers"]).values()) <= 3


def test_the_gold_rules_derive_the_answer_and_nothing_else_does(book):
    rules, rows = book
    everything = dict(enumerate(rules))
    for row in rows:
        gold, parallel = row["gold"], row["parallel"]
        ends = gold if parallel else gold[-1:]
        expected = dict.fromkeys(gold, 1) if parallel else {rule: depth for depth, rule in enumerate(gold, 1)}
        assert fired(row["given"], {i: rules[i] for i in gold}) == expected, row
        assert row["given"] == [rules[i][0] for i in (gold if parallel else gold[:1])], row
        for missing in gold:
            rest = {i: rule for i, rule in everything.items() if i != missing}
            known = {rules[i][1] for i in fired(row["given"], rest)}
            assert rules[missing if parallel else gold[-1]][1] not in known, f"{row} without rule {missing}"
        # An answer is said by its gold rule alone, of all that follow at any depth, and not by the question.
        follows = fired(row["given"], everything)
        for answer, end in zip(row["answers"], ends, strict=True):
            assert [i for i in follows if says(rules[i][1], answer)] == [end], row
            assert not says(row["question"], answer), row
