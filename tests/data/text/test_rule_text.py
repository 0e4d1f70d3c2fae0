"""Rules as text: every rule written anew from its typed columns, and every text parsed back to them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from ruleworld_data.generate import rule_table
from ruleworld_data.spec import Dials
from ruleworld_data.text import parse_rule_fol, parse_rule_nl
from ruleworld_data.verify import parse_rule_table

brute = runpy.run_path(str(Path(__file__).parents[1] / "brute_force.py"))
things, rows = brute["things"], brute["rows"]

THIRD = {row[0]: row[1] for row in rows("actions.tsv")} | {row[1]: row[2] for row in rows("change_verbs.tsv")}
SIGN = {row[1]: row[0] for row in rows("change_verbs.tsv")}
AT, TO = {}, {}
for name, preposition, article, goal in rows("environments.tsv"):
    AT[name] = f"{preposition} {article} {name}"
    TO[name] = f"{goal} {article} {name}"


@pytest.fixture(
    scope="module", params=[("train", "tiny"), ("heldout", "tiny"), ("train", "paper")], ids="-".join
)
def rules(request):
    return rule_table(*request.param).to_pylist()


def symbol(term: str) -> str:
    return term[0].upper() + term[1:].replace(" ", "_")


def written(rule: dict, verbs: list[str]) -> tuple[str, str]:
    """Write a rule from its typed columns; ``verbs`` are the change verbs it happens to use."""
    trigger, change = (verbs[0], verbs[-1]) if verbs else ("", "")
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
                f"Has({symbol(attribute)}, {amount})",
            ),
        )
    elif rule["type"] == "attrchange2attr":
        cause = rule["trigger_attribute"]
        halves = ((f"A {THIRD[trigger]} 1 {cause}", f"{symbol(trigger)}_{symbol(cause)}(A, 1)"), effect)
    elif rule["type"] == "action2env":
        halves = act, (f"B will {TO[place]}", f"Enter(B, {symbol(place)})")
    elif rule["type"] == "action2attr":
        halves = act, effect
    elif rule["type"] == "action2state":
        halves = act, (f"{who} will be {state}", f"{symbol(state)}({who})")
    elif rule["type"] == "env2state":
        halves = (
            (f"A is {AT[place]}", f"{symbol(place)}(A)"),
            (f"A will be {state}", f"{symbol(state)}(A)"),
        )
    else:
        halves = (f"A is {state}", f"{symbol(state)}(A)"), effect
    (premise, premise_fol), (conclusion, conclusion_fol) = halves
    return f"If {premise}, {conclusion}.", f"{premise_fol} => {conclusion_fol}"


def test_typed_columns_say_what_the_text_says(rules):
    for rule in rules:
        verbs = [verb.lower() for verb in re.findall(r"\b([A-Z][a-z]+)_[A-Z]", rule["fol"])]
        assert (rule["nl"], rule["fol"]) == written(rule, verbs)
        signs = [sign for sign in (rule["trigger_operator"], rule["operator"]) if sign]
        assert [SIGN[verb] for verb in verbs] == signs


def test_every_change_verb_is_used(rules):
    for sign in ("minus", "plus"):
        used = {
            rule["fol"].split(" => ")[1].split("_")[0].lower() for rule in rules if rule["operator"] == sign
        }
        assert used == {verb for verb, of in SIGN.items() if of == sign}


@pytest.mark.parametrize("dials", [{}, {"conjunction": 2, "thresholds": True}])
def test_every_row_parses_to_its_columns_in_both_forms(dials):
    table = rule_table("train", "tiny", dials=Dials(**dials))
    base = parse_rule_table(table)
    for row, rule in enumerate(table.to_pylist()):
        parts = base.rule(row)
        assert parts == parse_rule_fol(rule["fol"]) == parse_rule_nl(rule["nl"])
        assert {name: rule.get(name) for name in vars(parts)} == vars(parts)
