"""Worlds in plain English: what follows is derived again from the rules' texts alone."""

import hashlib
import json
import random
import re

import pytest
from plain import DOMAINS, HELD_OUT, Claim, PlainWorld, plain_questions, plain_world
from rwbench.run.books import book_folder
from rwbench.spec import BOOKS, VALIDATION_BOOKS


def clauses(text):
    premise, conclusion = re.fullmatch(r"If (.+?), (.+)\.", text).groups()
    return premise, conclusion


def pattern(template):
    """A template as a regular expression for any subject and value."""
    parts = re.split(r"({\w+})", template)
    return "".join(".+" if part.startswith("{") else re.escape(part) for part in parts)


def closure(texts, given):
    """Everything that follows from what is stated, by equality of words."""
    known, grown = set(given), True
    while grown:
        new = {then for premise, then in map(clauses, texts) if premise in known} - known
        grown = bool(new)
        known |= new
    return known - set(given)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda each: each.name)
def test_answers_follow_from_the_rules_and_no_other_value_does(domain):
    asked = 0
    for number in range(6):
        draw = random.Random(f"test/{number}")
        world = plain_world(draw, domain, 40)
        texts = world.texts
        assert len(set(texts)) == len(texts) >= 30
        for hops, parts in ((1, 1), (2, 1), (3, 1), (1, 2)):
            row = world.question(draw, hops, parts)
            if row is None:
                continue
            asked += 1
            assert len(row["steps"]) == (parts if parts > 1 else hops)
            gold = [clauses(texts[step["rule_ids"][0]]) for step in row["steps"]]
            given = {premise for premise, _ in gold} - {then for _, then in gold}
            assert not re.search(r"[{}]|None", row["question"] + "".join(s["nl"] for s in row["steps"]))
            followed = closure(texts, given)
            ends = gold if parts > 1 else gold[-1:]
            for (_, then), answer in zip(ends, row["answers"], strict=True):
                assert then in followed and answer in then
                facts = [each.rule for each in domain.facts if each.role != "start"]
                (fact,) = {rule for rule in facts if re.fullmatch(pattern(rule), then)}
                assert [each for each in followed if re.fullmatch(pattern(fact), each)] == [then]
            rest = [text for i, text in enumerate(texts) if i not in row["gold_rule_ids"]]
            assert ends[0][1] not in closure(rest, given)
    assert asked > 12


def test_no_rule_book_says_what_a_domain_says():
    """The books are test sets: no clause of theirs is one of a domain's, whoever it is about."""
    books = [
        text
        for book in (*BOOKS, *VALIDATION_BOOKS)
        for text in (book_folder(book) / "rules.txt").read_text(encoding="utf-8").splitlines()
    ]
    said = {clause for text in books for clause in clauses(text)}
    for domain in DOMAINS:
        for fact in domain.facts:
            found = [clause for clause in said if re.fullmatch(pattern(fact.rule), clause)]
            assert not found, (domain.name, fact.rule, found)


def test_a_question_with_two_values_is_never_asked():
    """Either way would be an answer, so there is none."""
    domain = DOMAINS[0]
    start = next(fact for fact in domain.facts if fact.role == "start" and fact.values == (None,))
    middle = next(fact for fact in domain.facts if fact.role == "middle")
    end = next(fact for fact in domain.facts if fact.role == "end" and fact.values != (None,))
    values = end.values
    first, between = Claim(start, None), Claim(middle, middle.values[0])
    sure = PlainWorld(domain, [(first, between), (between, Claim(end, values[0]))])
    torn = PlainWorld(domain, [*sure.rules, (first, Claim(end, values[1]))])
    assert sure.question(random.Random(0), 2)["answers"]
    assert torn.question(random.Random(0), 2) is None


def test_the_questions_that_the_shipped_adapter_learned_from_are_drawn_again():
    """Those of validation, of other domains, by the commit that trained it (91a9bb78); the draws are by key."""
    drawn = plain_questions("finding", True, 400)
    digest = hashlib.sha256(json.dumps(drawn).encode()).hexdigest()
    assert digest == "9e26e366b4cc2badf8fcddfcd291a0cd0169741f3ad55b905e79764ee47ab15d"
    rules, rows = plain_questions("finding", False, 90)
    assert len(rows) == 90 and not set(rules) & set(drawn[0])
    assert {rule.split("-")[1] for rule in drawn[0]} == {name.split()[0] for name in HELD_OUT}
    assert plain_questions("finding", False, 0) == ({}, [])
