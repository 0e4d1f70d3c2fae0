"""Rules as text: a renderer written here, from the published grammar, is the reference for texts, parts and tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pyarrow as pa
import pytest
from ruleworld_data.generate import rule_table
from ruleworld_data.spec import Dials
from ruleworld_data.text import parse_rule
from ruleworld_data.verify import parse_rule_table

brute = runpy.run_path(str(Path(__file__).parents[1] / "brute_force.py"))
things, rows = brute["things"], brute["rows"]
THIRD = {row[0]: row[1] for row in rows("actions.tsv")} | {row[1]: row[2] for row in rows("change_verbs.tsv")}
SIGN = {row[1]: row[0] for row in rows("change_verbs.tsv")}
AT, TO = {}, {}
for name, preposition, article, goal in rows("environments.tsv"):
    AT[name] = f"{preposition} {article} {name}"
    TO[name] = f"{goal} {article} {name}"

ACT = ("action2env", "action2attr", "action2state")


def symbol(name: str) -> str:
    return name.capitalize().replace(" ", "_")


def written(rule: dict, verbs: list[str]) -> tuple[str, str]:
    """Write a rule from its parts in FOL and English; ``verbs`` are the change verbs it happens to use."""
    trigger, change = (verbs[0], verbs[-1]) if verbs else ("", "")
    who = {"actor": "A", "target": "B", None: "A"}[rule["role"]]
    kind, place, state, cause = (rule[c] for c in ("entity", "environment", "state", "trigger_attribute"))
    attribute, amount, act = rule["attribute"], rule["amount"], rule["action"]
    premise = {
        "entity2attr": lambda: (f"{symbol(kind)}(A)", f"A is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"),
        "attrchange2attr": lambda: (
            f"{symbol(trigger)}_{symbol(cause)}(A, 1)",
            f"A {THIRD[trigger]} 1 {cause}",
        ),
        "env2state": lambda: (f"{symbol(place)}(A)", f"A is {AT[place]}"),
        "state2attr": lambda: (f"{symbol(state)}(A)", f"A is {state}"),
        "place_state2attr": lambda: (
            f"{symbol(place)}(A) & {symbol(state)}(A)",
            f"A is {AT[place]} and is {state}",
        ),
        "count2state": lambda: (
            f"{'More' if rule['trigger_operator'] == 'plus' else 'Fewer'}_{symbol(cause)}(A, {rule['threshold']})",
            f"A has {'more' if rule['trigger_operator'] == 'plus' else 'fewer'} than "
            f"{things(rule['threshold'], cause)}",
        ),
        "exception": lambda: (
            " & ".join(f"{symbol(name)}(A)" for name in (state, kind, place) if name),
            f"A is {state}"
            + (
                f"{' and' if place else ' but'} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
                if kind
                else ""
            )
            + (f" but is {AT[place]}" if place else ""),
        ),
    } | dict.fromkeys(ACT, lambda: (f"{symbol(act)}(A, B)", f"A {THIRD[act]} B"))
    if rule["type"] == "entity2attr":
        conclusion = f"Has({symbol(attribute)}, {amount})", f"it has {things(amount, attribute)}"
    elif rule["type"] == "action2env":
        conclusion = f"Enter(B, {symbol(place)})", f"B will {TO[place]}"
    elif attribute:
        change_fol = f"{symbol(change)}_{symbol(attribute)}({who}, {amount})"
        conclusion = change_fol, f"{who} will {change} {things(amount, attribute)}"
        if rule["type"] == "exception":
            nl = f"{conclusion[1]} instead" if amount else f"A will {change} no {things(0, attribute)[2:]}"
            conclusion = f"Instead_{change_fol}", nl
    else:
        conclusion = f"{symbol(state)}({who})", f"{who} will be {state}"
    (fol, nl), (then_fol, then_nl) = premise[rule["type"]](), conclusion
    return f"{fol} => {then_fol}", f"If {nl}, {then_nl}."


@pytest.mark.parametrize("dials", [Dials(), Dials(conjunction=2, thresholds=True, exceptions=2)], ids=str)
def test_every_row_of_a_table_says_its_columns_in_both_forms(dials):
    table, used = rule_table("train", "tiny", dials=dials), set()
    parse_rule_table(table)  # finds no column that says something else
    for rule in table.to_pylist():
        verbs = [
            verb.lower()
            for verb in re.findall(r"(?:Instead_|\b)([A-Z][a-z]+)_(?=[A-Z])", rule["fol"])
            if verb.lower() in SIGN
        ]
        assert (rule["fol"], rule["nl"]) == written(rule, verbs)
        assert parse_rule("fol", rule["fol"])[0] == parse_rule("nl", rule["nl"])[0] == rule["type"]
        signs = [rule["trigger_operator"] if rule["type"] == "attrchange2attr" else None, rule["operator"]]
        assert [SIGN[verb] for verb in verbs] == [sign for sign in signs if sign]
        used.update(verbs[-1:])
    assert used == set(SIGN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tiny_cat(A) => Has(Strong_horn, 14) => Enter(A, Bridge)",
        "Tiny_cat(A) => Has(B, Strong_horn, 14)",
        "Tiny_cat(A) => Enter(A, Bridge)",
        "Lose_Strong_fin(A, 2) => Drop_Mineral_scale(A, 2)",
        "Attack(B, A) => Enter(B, Bridge)",
        "Attack(A, B) => Bridge(B)",
        "Deeply_hungry(A) & Bridge(A) => Lose_Strong_fin(A, 2)",
        "Deeply_hungry(A) & Bridge(A) & Tiny_cat(A) => Instead_Lose_Strong_fin(A, 2)",
        "Deeply_hungry(A) & Tiny_cat(A) => Instead_Has(Strong_fin, 2)",
        "More_Strong_horn(B, 12) => Deeply_hungry(B)",
        "More_Strong_horn(A, 12) => Lose_Strong_fin(A, 2)",
    ],
)
def test_other_fol_is_refused_by_name(text):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_rule("fol", text)
    premise, conclusion = text.split(" => ")[0], text.split(" => ")[-1]
    assert any(part in str(caught.value) for part in (repr(text), repr(premise), conclusion))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "If A is a tiny cat, it has 14 strong horns",
        "If A is an tiny cat, it has 14 strong horns.",
        "If A is a tiny cat, it has 14 strong horn.",
        "If A is a tiny cat, B has 14 strong horns.",
        "If A loses 2 strong fins, A will drop 2 mineral scales.",
        "If A is in the bridge, A will be slightly disappointed.",
        "If A attacks B, A will step onto the bridge.",
        "If A is on the bridge and deeply hungry, A will lose 2 strong fins.",
        "If A is deeply hungry and is on the bridge, A will lose 2 strong fins.",
        "If A has more than 12 strong horns, it has 4 strong fins.",
    ],
)
def test_other_english_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_rule("nl", text)


def test_a_table_without_fol_is_refused():
    with pytest.raises(ValueError, match="id and fol"):
        parse_rule_table(pa.table({"id": pa.array([1], pa.int32()), "nl": ["If"]}))
