"""Plain worlds: what follows is derived again from the words of rules alone, and rules say what they stand for."""

import random
import re
from collections import Counter

import pytest
from plain import DOMAINS, HELD_OUT, NO_RULE, UNKNOWN, VALUES, Claim, PlainWorld, Rule, fill
from rwbench.run.books import book_folder
from rwbench.spec import BOOKS, VALIDATION_BOOKS
from wording import KINDS, MORE_KINDS, plain_questions, plain_world

ALLOWED = """after again allowed assigned been before blue brings brought call called carries city colour come cracked
does done during enters entrusted euros fewer final first followed from gives goes have high into last long loose made
make many minutes more need number opened ordered part pass pick picks place plays pull refuses reserved rest runs sewn
signed since stand stands start taken test than that thousand time times used warm wear week weeks what when where which
while whom whose with without work""".split()


def pattern(template):
    """A template as a regular expression for any subject and value."""
    return "".join(".+" if p.startswith("{") else re.escape(p) for p in re.split(r"({\w+})", template))


def names(world):
    it = ("it", "it", "its") if world.domain.things else ("they", "them", "their")
    return (f"the {world.domain.subject}", *it)


def said(world, claim):
    return fill(claim.fact.rule, names(world), claim.value)


def follows(world, stated):
    """What follows, by equality of words: pairs of a conclusion and its rule, of which no exception is stated."""
    rules = [
        ({said(world, p) for p in rule.premises}, [said(world, c) for c in rule.then], rule.unless)
        for rule in world.rules
    ]
    known, found = set(stated), set()
    while True:
        new = {
            (then, number)
            for number, (premises, all_then, unless) in enumerate(rules)
            if premises <= known and not (unless and said(world, unless) in stated)
            for then in all_then
        }
        if new == found:
            return found
        found, known = new, known | {then for then, _ in new}


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda each: each.name)
def test_answers_follow_from_the_rules_alone_or_nothing_does(domain):
    told = Counter()
    for number in range(5):
        draw = random.Random(f"test/{number}")
        world = plain_world(draw, domain, 45, 0.15)
        assert len(set(world.texts)) == len(world.texts) == len(world.rules) >= 30
        for rule, text in zip(world.rules, world.texts, strict=True):
            for claim in (*rule.premises, *rule.then, *filter(None, (rule.unless,))):
                words = said(world, claim).removeprefix(f"the {domain.subject} ")
                label = fill(claim.fact.answer, names(world), claim.value).removeprefix("the ")
                assert words.lower() in text.lower() or text.lower().startswith(label.lower()), (text, words)
        for kind, hops in (*KINDS, *MORE_KINDS):
            row = world.question(draw, hops, kind)
            if row is None:
                continue
            told[kind] += 1
            assert not re.search(r"[{}]|None", row["question"] + "".join(s["nl"] for s in row["steps"]))
            gold = [step["rule_ids"][0] for step in row["steps"] if step["rule_ids"]]
            assert sorted(set(gold)) == row["gold_rule_ids"] and len(row["steps"]) >= len(row["answers"]) > 0
            assert (row["answers"] == [UNKNOWN]) == (row["steps"][-1]["nl"] == NO_RULE)
    assert set(told) >= {kind for kind, _ in (*KINDS, *MORE_KINDS)} - {"compare"}


def test_what_is_asked_follows_from_what_is_stated():
    """The executor against equality of words, for premises stated at random."""
    known = unknown = 0
    for number in range(60):
        draw = random.Random(number)
        world = plain_world(draw, draw.choice(DOMAINS), 40, 0.15)
        claims = [claim for rule in world.everything for claim in rule.premises if claim.fact.said]
        given = draw.sample(claims, 2)
        if given[0].fact is given[1].fact:
            continue
        own = {(said(world, then), n) for then, rules in world.follow(given).items() for n in rules}
        assert own == follows(world, {said(world, claim) for claim in given})
        for fact in world.domain.facts:
            if fact.role != "end":
                continue
            found = {(then, n) for then, n in own if re.fullmatch(pattern(fact.rule), then)}
            proof = world._proof(given, fact)
            if proof == []:
                assert not found
                unknown += 1
            elif proof:
                ((then, rule),) = found
                assert (said(world, proof[-1][1]), proof[-1][0]) == (then, rule)
                known += 1
    assert known > 60 and unknown > 60


def test_exceptions_two_premises_and_sums():
    domain = DOMAINS[0]
    first, second = (
        f for f in domain.facts if f.role == "start" and f.values == (None,) and "{s}" in f.said[0]
    )
    fact = next(f for f in domain.facts if f.role == "end" and f.slot == "number")
    cash, quiet = Claim(first, None), Claim(second, None)
    rules = [Rule((cash,), (Claim(fact, "20"),), quiet), Rule((cash, quiet), (Claim(fact, "30"),))]
    for stated, book, due in (
        ([cash], rules, "20"),
        ([cash, quiet], rules, "30"),
        ([cash, quiet], rules[:1], None),
    ):
        proof = PlainWorld(domain, book, ["", ""]).follow(stated)
        assert [claim.value for claim in proof] == ([due] if due else [])
    sums = PlainWorld(
        domain, [Rule((cash,), (Claim(fact, "20"),)), Rule((quiet,), (Claim(fact, "35"),))], ["", ""]
    )
    answers = {sums.question(random.Random(i), 1, "compare")["answers"][0] for i in range(30)}
    assert {"55", "15"} < answers and all(a in ("55", "15") or a.isalpha() for a in answers)


def test_domains_of_validation_share_no_nouns_with_those_of_training():
    def words(held):
        texts = []
        for domain in DOMAINS:
            if (domain.name in HELD_OUT) == held:
                texts += [domain.subject, *domain.things]
                for fact in domain.facts:
                    texts += [fact.rule, *fact.said, *fact.ask, fact.answer]
                    texts += [] if fact.slot in (*VALUES, "limit") else [str(v) for v in fact.values]
        return {*re.findall(r"[a-z]{4,}", re.sub(r"{\w+}", " ", " ".join(texts)).lower())}

    assert set(HELD_OUT) < {domain.name for domain in DOMAINS}
    assert words(True) & words(False) <= set(ALLOWED) | {"none"}


def test_no_rule_book_says_what_a_domain_says():
    """The books are test sets: no clause of theirs is one of a domain's, whoever it is about."""
    books = [
        text
        for book in (*BOOKS, *VALIDATION_BOOKS)
        for text in (book_folder(book) / "rules.txt").read_text(encoding="utf-8").splitlines()
    ]
    clauses = {clause for text in books for clause in re.fullmatch(r"If (.+?), (.+)\.", text).groups()}
    for domain in DOMAINS:
        for fact in domain.facts:
            found = [clause for clause in clauses if re.fullmatch(pattern(fact.rule), clause)]
            assert not found, (domain.name, fact.rule, found)


def test_finding_gets_one_world_a_domain_and_other_domains_to_measure():
    rules, rows = plain_questions("test", False, 90)
    held, held_rows = plain_questions("test", True, 15)
    assert len(rows) == 90 and len(held_rows) == 15 and not set(rules) & set(held)
    assert plain_questions("test", False, 90) == (rules, rows)
    assert {row["subtask"] for row in rows} == {kind for kind, _ in KINDS}
    assert all(rule in rules for row in rows for step in row["steps"] for rule in step["rule_ids"])
    assert {rule.split("-")[1] for rule in held} == {name.split()[0] for name in HELD_OUT}
    assert plain_questions("test", False, 0) == ({}, [])
