"""Worlds in plain English: what follows is derived again from the rules' texts alone."""

import random
import re

import pytest
from plain import DOMAINS, HELD_OUT, Claim, PlainWorld, plain_questions, plain_world
from rwbench.run.books import book_rules
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
    for number in range(12):
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
                (fact,) = {
                    each.rule
                    for each in domain.facts
                    if each.role != "start" and re.fullmatch(pattern(each.rule), then)
                }
                assert [each for each in followed if re.fullmatch(pattern(fact), each)] == [then]
            for step, (_, then) in zip(row["steps"], gold, strict=True):
                value = re.findall(r"\d[\d:]*|[A-Z]\w+", then)
                assert all(each in step["nl"] for each in value)
            rest = [text for i, text in enumerate(texts) if i not in row["gold_rule_ids"]]
            assert ends[0][1] not in closure(rest, given)
    assert asked > 25


def test_facts_of_a_domain_are_told_apart():
    for domain in DOMAINS:
        for fact in domain.facts:
            assert fact.role in ("start", "middle", "end")
            assert bool(fact.said) == (fact.role != "end") and bool(fact.ask) == (fact.role != "start")
            same = [each for each in domain.facts if re.fullmatch(pattern(each.rule), fact.rule)]
            assert same == [fact], (domain.name, fact.rule)
            if fact.role == "middle":
                assert len(fact.values) >= 6
    assert set(HELD_OUT) < {domain.name for domain in DOMAINS}


def test_no_rule_book_says_what_a_domain_says():
    """The books are test sets: no clause of theirs is one of a domain's, whoever it is about."""
    said = {
        clause
        for book in (*BOOKS, *VALIDATION_BOOKS)
        for text in book_rules(book)
        for clause in clauses(text)
    }
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


def test_finding_gets_one_world_a_domain_and_other_domains_to_measure():
    rules, rows = plain_questions("test", False, 90)
    held, held_rows = plain_questions("test", True, 15)
    assert len(rows) == 90 and len(held_rows) == 15 and not set(rules) & set(held)
    assert plain_questions("test", False, 90) == (rules, rows)
    assert {row["subtask"] for row in rows} == {"single_rule", "multi_rule", "multi_hop"}
    for row in rows:
        for step in row["steps"]:
            text, conclusion = rules[step["rule_ids"][0]]
            assert text.endswith(f", {conclusion}.")
    assert {rule.split("-")[1] for rule in held} == {name.split()[0] for name in HELD_OUT}
    assert plain_questions("test", False, 0) == ({}, [])
