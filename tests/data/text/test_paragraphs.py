"""Paragraphs: each sentence is read back by what the one before says, and every rule is told once."""

import re
from dataclasses import replace

import pytest
from ruleworld_data.spec import Dials
from ruleworld_data.text import paragraphs, parse_rule
from ruleworld_data.text.english import parse_half_nl
from ruleworld_data.text.parser import halves_nl

from ..cases import rule_table

ALL = Dials(hops=5, conjunction=2, thresholds=True, exceptions=2)
BESIDES = {
    "such a creature": "A",
    "it": "A",
    "whoever does this to another": "A",
    "whoever this is done to": "B",
}
LEADS = {"whoever is there": "in", "whoever is in that state": "state"}


def said_of(clause, names):
    """Return which name a clause says something of, and the clause with A or B in its place."""
    found = [name for name in names if re.search(rf"^{name} |(?:by|on) {name}(?: instead)?$", clause)]
    assert len(found) == 1, clause
    return found[0], re.sub(rf"\b{found[0]}\b", names.get(found[0], "A"), clause, count=1)


def read(paragraph):
    """Yield the halves of each sentence as facts."""
    first, *others = paragraph.removesuffix(".").split(". ")
    premise, conclusion = map(parse_half_nl, ("premise", "conclusion"), halves_nl(f"{first}."))
    yield premise, conclusion
    for sentence in others:
        same, besides = (sentence.partition(start)[2] for start in ("The same holds if ", "Besides, "))
        if same:
            what = re.sub(r"\bit\b(?! comes about)", "A", same, count=1)
            premise = parse_half_nl("premise", what)
        elif besides:
            name, what = said_of(besides, BESIDES)
            assert (name in list(BESIDES)[2:]) == (premise.kind == "act")
            conclusion = parse_half_nl("conclusion", what)
        else:
            name, what = said_of(sentence[0].lower() + sentence[1:], dict.fromkeys(LEADS, "A"))
            assert conclusion.kind == LEADS[name]
            premise, conclusion = conclusion._replace(who="A"), parse_half_nl("conclusion", what)
        yield premise, conclusion


@pytest.mark.parametrize("words", [0.0, 0.5, 1.0])
def test_every_paragraph_is_read_back(words):
    table = rule_table("train", "tiny", dials=replace(ALL, words=words), version="1.2")
    rules = {rule["id"]: parse_rule("nl", rule["nl"])[1:] for rule in table.to_pylist()}
    told = paragraphs(table, 7).to_pylist()
    for row in told:
        assert list(read(row["text"])) == [rules[i] for i in row["rule_ids"]]
    order = [i for row in told for i in row["rule_ids"]]
    assert sorted(order) == sorted(rules)
    sizes = [len(row["rule_ids"]) for row in told]
    assert max(sizes) == 3 and sizes.count(1) < 0.15 * len(told) < 0.6 * sizes.count(2)
    text = " ".join(row["text"] for row in told)
    assert all(phrase.casefold() in text.casefold() for phrase in (*BESIDES, *LEADS, "The same holds if "))
    assert not re.search("another creature|some other being", text)  # "that creature" could be either


def test_a_key_names_the_paragraphs():
    pool = rule_table("train", "tiny").slice(0, 300)
    assert paragraphs(pool, 1).equals(paragraphs(pool, 1)) and paragraphs(pool, 1) != paragraphs(pool, 2)
    assert paragraphs(pool.slice(0, 0)).num_rows == 0
