"""Rules as text: the grammar, typed here as regular expressions, and the typed columns against it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from ruleworld_data.generate import rule_table

brute = runpy.run_path(str(Path(__file__).parents[1] / "brute_force.py"))
things, rows = brute["things"], brute["rows"]

TERM, SYMBOL, NUMBER = r"[a-z]+(?: [a-z]+)*", r"[A-Z][a-z]*(?:_[a-z]+)*", r"[1-9]\d*"
VERB = r"(?:lose|drop|gain|get|receive)"
EVENT = r"(?:Lose|Drop|Gain|Get|Receive)_[A-Z][a-z]+_[a-z]+"
NL = {
    "entity2attr": rf"If A is an? {TERM}, it has {NUMBER} {TERM}\.",
    "attrchange2attr": rf"If A {VERB}s 1 {TERM}, A will {VERB} [123] {TERM}\.",
    "action2env": rf"If A [a-z]+ B, B will {TERM}\.",
    "action2attr": rf"If A [a-z]+ B, [AB] will {VERB} [123] {TERM}\.",
    "action2state": rf"If A [a-z]+ B, [AB] will be {TERM}\.",
    "env2state": rf"If A is (?:in|on|at) the {TERM}, A will be {TERM}\.",
    "state2attr": rf"If A is {TERM}, A will {VERB} [123] {TERM}\.",
}
FOL = {
    "entity2attr": rf"{SYMBOL}\(A\) => Has\({SYMBOL}, {NUMBER}\)",
    "attrchange2attr": rf"{EVENT}\(A, 1\) => {EVENT}\(A, [123]\)",
    "action2env": rf"{SYMBOL}\(A, B\) => Enter\(B, {SYMBOL}\)",
    "action2attr": rf"{SYMBOL}\(A, B\) => {EVENT}\([AB], [123]\)",
    "action2state": rf"{SYMBOL}\(A, B\) => {SYMBOL}\([AB]\)",
    "env2state": rf"{SYMBOL}\(A\) => {SYMBOL}\(A\)",
    "state2attr": rf"{SYMBOL}\(A\) => {EVENT}\(A, [123]\)",
}
OLD_FOL = FOL | {
    "entity2attr": rf"{SYMBOL}\(A\) => Has\(A, {SYMBOL}, {NUMBER}\)",
    "action2env": rf"{SYMBOL}\(A, B\) => In\(B, {SYMBOL}\)",
    "env2state": rf"In\(A, {SYMBOL}\) => {SYMBOL}\(A\)",
}
COLUMNS = (
    "id type nl fol premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state "
    "trigger_attribute trigger_operator attribute operator amount in_paper world_id"
).split()
THIRD = {row[0]: row[1] for row in rows("actions.tsv")} | {row[1]: row[2] for row in rows("change_verbs.tsv")}
SIGN = {row[1]: row[0] for row in rows("change_verbs.tsv")}
AT, TO = {}, {}
for name, preposition, article, *goal in rows("environments.tsv"):
    version = "1.1" if goal else "1.0"
    AT[version, name] = f"{preposition} {article} {name}"
    TO[version, name] = f"{goal[0] if goal else 'enter'} {article} {name}"
TABLES = [
    ("train", "tiny", "1.0"),
    ("heldout", "tiny", "1.0"),
    ("train", "paper", "1.0"),
    ("train", "tiny", "1.1"),
    ("train", "paper", "1.1"),
]


@pytest.fixture(scope="module", params=TABLES, ids="-".join)
def table(request):
    split, scale, version = request.param
    return version, rule_table(split, scale, version=version).to_pylist()


@pytest.fixture(scope="module")
def rules(table):
    return table[1]


def test_columns_are_in_order():
    assert rule_table("train", "tiny").column_names == COLUMNS
    assert rule_table("train", "tiny", start=5, stop=5).column_names == COLUMNS


def test_every_rule_follows_the_grammar_of_its_type(table):
    version, rules = table
    fol = OLD_FOL if version == "1.0" else FOL
    assert {rule["type"] for rule in rules} == set(NL) == set(FOL)
    for rule in rules:
        assert re.fullmatch(NL[rule["type"]], rule["nl"]), rule["nl"]
        assert re.fullmatch(fol[rule["type"]], rule["fol"]), rule["fol"]


def test_halves_make_the_whole(rules):
    for rule in rules:
        assert rule["nl"] == f"If {rule['premise_nl']}, {rule['conclusion_nl']}."
        assert rule["fol"] == f"{rule['premise_fol']} => {rule['conclusion_fol']}"


def symbol(term: str) -> str:
    return term[0].upper() + term[1:].replace(" ", "_")


def written(rule: dict, verbs: list[str], version: str) -> tuple[str, str]:
    """Write a rule from its typed columns; ``verbs`` are the change verbs it happens to use."""
    trigger, change = (verbs[0], verbs[-1]) if verbs else ("", "")
    old = version == "1.0"
    who = {"actor": "A", "target": "B", None: "A"}[rule["role"]]
    kind, place, state, action = (rule[c] for c in ("entity", "environment", "state", "action"))
    attribute, amount = rule["attribute"], rule["amount"]
    effect = change and (
        f"{who} will {change} {things(amount, attribute)}",
        f"{symbol(change)}_{symbol(attribute)}({who}, {amount})",
    )
    act = action and (f"A {THIRD[action]} B", f"{symbol(action)}(A, B)")
    if rule["type"] == "entity2attr":
        article = "an" if kind[0] in "aeiou" else "a"
        halves = (
            (f"A is {article} {kind}", f"{symbol(kind)}(A)"),
            (
                f"it has {things(amount, attribute)}",
                f"Has({'A, ' if old else ''}{symbol(attribute)}, {amount})",
            ),
        )
    elif rule["type"] == "attrchange2attr":
        cause = rule["trigger_attribute"]
        halves = ((f"A {THIRD[trigger]} 1 {cause}", f"{symbol(trigger)}_{symbol(cause)}(A, 1)"), effect)
    elif rule["type"] == "action2env":
        halves = act, (f"B will {TO[version, place]}", f"{'In' if old else 'Enter'}(B, {symbol(place)})")
    elif rule["type"] == "action2attr":
        halves = act, effect
    elif rule["type"] == "action2state":
        halves = act, (f"{who} will be {state}", f"{symbol(state)}({who})")
    elif rule["type"] == "env2state":
        halves = (
            (f"A is {AT[version, place]}", f"In(A, {symbol(place)})" if old else f"{symbol(place)}(A)"),
            (f"A will be {state}", f"{symbol(state)}(A)"),
        )
    else:
        halves = (f"A is {state}", f"{symbol(state)}(A)"), effect
    (premise, premise_fol), (conclusion, conclusion_fol) = halves
    return f"If {premise}, {conclusion}.", f"{premise_fol} => {conclusion_fol}"


def test_typed_columns_say_what_the_text_says(table):
    version, rules = table
    for rule in rules:
        verbs = [verb.lower() for verb in re.findall(r"\b([A-Z][a-z]+)_[A-Z]", rule["fol"])]
        assert (rule["nl"], rule["fol"]) == written(rule, verbs, version)
        signs = [sign for sign in (rule["trigger_operator"], rule["operator"]) if sign]
        assert [SIGN[verb] for verb in verbs] == signs


USED = {
    "entity2attr": {"entity", "attribute", "amount"},
    "attrchange2attr": {"trigger_attribute", "trigger_operator", "attribute", "operator", "amount"},
    "action2env": {"action", "environment"},
    "action2attr": {"action", "role", "attribute", "operator", "amount"},
    "action2state": {"action", "role", "state"},
    "env2state": {"environment", "state"},
    "state2attr": {"state", "attribute", "operator", "amount"},
}


def test_parts_that_a_type_lacks_are_null(rules):
    parts = set().union(*USED.values())
    for rule in rules:
        assert {part for part in parts if rule[part] is not None} == USED[rule["type"]]


def test_every_change_verb_is_used(rules):
    for sign in ("minus", "plus"):
        used = {
            rule["fol"].split(" => ")[1].split("_")[0].lower() for rule in rules if rule["operator"] == sign
        }
        assert used == {verb for verb, of in SIGN.items() if of == sign}
