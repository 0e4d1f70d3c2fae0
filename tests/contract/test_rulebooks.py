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
    "clinic": ROOT / "benchmarks/src/rwbench/rulebooks/clinic",
    **{
        name: ROOT / "benchmarks/src/rwbench/rulebooks" / name for name in ("parcel_depot", "pool", "theatre")
    },
}
TOLD = re.compile(r"the \w+ (?:is |was )?(.+)|(.+)")


def rules_of(book: str) -> list[tuple[str, str]]:
    """Premise and conclusion of each line."""
    lines = (BOOKS[book] / "rules.txt").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"If ([^,.]+(?:\.\d[^,.]*)?), ([^,.]+)\.", line) for line in lines]
    assert all(found), lines[found.index(None)]
    return [match.groups() for match in found]


def questions_of(book: str) -> list[dict]:
    return list(map(json.loads, (BOOKS[book] / "questions.jsonl").read_text(encoding="utf-8").splitlines()))


def gold_of(row: dict) -> list[int]:
    return [int(name) for step in row["steps"] for name in step["rule_ids"]]


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


def answers_to(row: dict, rules: list[tuple[str, str]]) -> dict[str, list[int]]:
    """Each answer, and the rules that follow from what is given, at any depth, and say it."""
    follows = fired(row["given"], dict(enumerate(rules)))
    return {answer: [i for i in follows if says(rules[i][1], answer)] for answer in row["answers"]}


def test_forward_chaining_stops_where_nothing_follows():
    rules = {0: ("a", "b"), 1: ("b", "c"), 2: ("c", "a"), 3: ("d", "e")}
    assert fired(["a"], rules) == {0: 1, 1: 2, 2: 3} and fired(["e"], rules) == {}
    assert says("it is kept for 9 days.", "9") and not says("the van leaves at 9:30", "9")


@pytest.mark.parametrize("book", BOOKS)
def test_rules_share_premises_and_make_chains(book):
    rules = rules_of(book)
    assert len(rules) == len(set(rules)) == 40
    shared = Counter(premise for premise, _ in rules)
    assert max(shared.values()) <= 4
    assert sum(n > 1 for n in shared.values()) >= len(shared) / 3
    conclusions = {conclusion for _, conclusion in rules}
    assert sum(premise in conclusions for premise, _ in rules) >= 12
    assert sum(conclusion not in shared for _, conclusion in rules) >= 12
    assert sum(bool(re.search(r"\d", " ".join(rule))) for rule in rules) >= 12
    assert (
        sum(bool(re.search(r"\d", premise)) for premise in shared) >= 3
    )  # thresholds, or places with numbers


@pytest.mark.parametrize("book", BOOKS)
def test_nothing_that_follows_from_one_fact_is_said_twice_with_another_value(book):
    rules = dict(enumerate(rules_of(book)))
    for premise, _ in rules.values():
        told = [rules[i][1].split() for i in fired([premise], rules)]
        for i, one in enumerate(told):
            for other in told[i + 1 :]:
                differ = (
                    sum(a != b for a, b in zip(one, other, strict=False)) if len(one) == len(other) else 9
                )
                assert differ > 1, f"{premise}: {' '.join(one)}, and {' '.join(other)}"


@pytest.mark.parametrize("book", BOOKS)
def test_ten_questions_of_each_number_of_steps(book):
    rows, rules = questions_of(book), rules_of(book)
    assert len({row["question"] for row in rows}) == len(rows)
    assert Counter(len(row["steps"]) for row in rows) == {1: 10, 2: 10, 3: 10}
    kinds = Counter((len(row["steps"]), row["family"]) for row in rows)
    assert set(kinds) == {(1, "single_rule"), (2, "multi_hop"), (2, "multi_rule"), (3, "multi_hop")}
    assert kinds[2, "multi_rule"] >= 3 and kinds[2, "multi_hop"] >= 5
    used = {i for row in rows for i in gold_of(row)}
    assert len(used) <= len(rules) - 4  # the others are there to be passed over


@pytest.mark.parametrize("book", BOOKS)
def test_the_gold_rules_derive_the_answer_and_nothing_else_does(book):
    rules = rules_of(book)
    everything = dict(enumerate(rules))
    for row in questions_of(book):
        gold, told = gold_of(row), row["question"]
        assert all(len(step["rule_ids"]) == 1 for step in row["steps"]), told
        parallel = row["family"] == "multi_rule"
        depths = range(1, len(gold) + 1)
        expected = dict.fromkeys(gold, 1) if parallel else dict(zip(gold, depths, strict=True))
        assert fired(row["given"], {i: rules[i] for i in gold}) == expected, told
        assert row["given"] == [rules[i][0] for i in (gold if parallel else gold[:1])], told
        for missing in gold:
            rest = {i: rule for i, rule in everything.items() if i != missing}
            known = {rules[i][1] for i in fired(row["given"], rest)}
            assert rules[missing if parallel else gold[-1]][1] not in known, f"{told} without rule {missing}"


@pytest.mark.parametrize("book", BOOKS)
def test_an_answer_is_said_by_its_gold_rule_alone(book):
    rows, rules = questions_of(book), rules_of(book)
    for row in rows:
        gold = gold_of(row)
        ends = gold if row["family"] == "multi_rule" else gold[-1:]
        assert answers_to(row, rules) == {a: [i] for a, i in zip(row["answers"], ends, strict=True)}, row
        assert not any(says(row["question"], answer) for answer in row["answers"]), row
    counts = Counter(answer for row in rows for answer in row["answers"])
    assert max(counts.values()) <= 3, counts  # no one guess is often right


@pytest.mark.parametrize("book", BOOKS)
def test_a_step_says_its_rule_with_the_names_of_the_question(book):
    rules = rules_of(book)
    for row in questions_of(book):
        for step, i in zip(row["steps"], gold_of(row), strict=True):
            assert re.fullmatch(r"[A-Z].+, so .+\.", step["text"]), step
            then = step["text"].split(", so ")[1]
            values = re.findall(r"[\d:]*\d|[A-Z][\w-]*", rules[i][1])
            assert all(says(then, value) for value in values), (step, rules[i])
            words = set(re.findall(r"\w{4,}", rules[i][1])) - {"reader", "patient", "parcel", "item"}
            assert len([word for word in words if word in then]) >= len(words) / 2, (step, rules[i])
        ends = row["steps"] if row["family"] == "multi_rule" else row["steps"][-1:]
        assert all(says(s["text"], answer) for s, answer in zip(ends, row["answers"], strict=True)), row


BOUNDS = {
    r"(?:above|more than|longer than) ([\d.]+)": lambda n, low: n > low,
    r"(?:below|before|less than) ([\d.]+)": lambda n, high: n < high,
    r"([\d.]+) or more": lambda n, low: n >= low,
    r"([\d.]+) to ([\d.]+)": lambda n, low, high: low <= n <= high,
}


def within(fact: str, n: float) -> bool | None:
    """Whether a number is within the bound that a fact states; None where it states none."""
    for pattern, holds in BOUNDS.items():
        if found := re.search(pattern, fact):
            return holds(n, *map(float, found.groups()))
    return None


@pytest.mark.parametrize("book", BOOKS)
def test_a_number_in_a_question_is_on_the_side_of_the_threshold_that_it_is_said_to_be(book):
    """The first step names the question's own number first, then the bound."""
    compared = 0
    for row in questions_of(book):
        fact, first = row["given"][0], row["steps"][0]["text"]
        numbers = re.findall(r"\d[\d.]*(?<!\.)", first.split(", so ")[0])
        if within(fact, 0) is not None and numbers[0] not in re.findall(r"\d[\d.]*(?<!\.)", fact):
            assert within(fact, float(numbers[0])) and says(row["question"], numbers[0]), row
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("book", BOOKS)
def test_about_a_third_of_the_questions_state_their_premise_in_other_words(book):
    told = [(row["question"], given) for row in questions_of(book) for given in row["given"][:1]]
    other = [
        q for q, given in told if next(filter(None, TOLD.fullmatch(given).groups())).lower() not in q.lower()
    ]
    assert 8 <= len(other) <= 13, other
