"""Rules as text: the grammar, typed here as regular expressions, and the typed columns against it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ruleworld_data.generate import rule_table
from ruleworld_data.io.schema import RULE_SCHEMA
from ruleworld_data.spec import Dials
from ruleworld_data.text import parse_rule_fol, parse_rule_nl
from ruleworld_data.text.render import block_table
from ruleworld_data.verify import parse_rule_table
from ruleworld_data.world import Names, RuleBlock, load_vocabulary

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
COLUMNS = (
    "id type nl fol premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state "
    "trigger_attribute trigger_operator attribute operator amount in_paper world_id"
).split()
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


def test_columns_are_in_order():
    assert rule_table("train", "tiny").column_names == COLUMNS
    assert rule_table("train", "tiny", start=5, stop=5).column_names == COLUMNS


def test_every_rule_follows_the_grammar_of_its_type(rules):
    assert {rule["type"] for rule in rules} == set(NL) == set(FOL)
    for rule in rules:
        assert re.fullmatch(NL[rule["type"]], rule["nl"]), rule["nl"]
        assert re.fullmatch(FOL[rule["type"]], rule["fol"]), rule["fol"]


def test_halves_make_the_whole(rules):
    for rule in rules:
        assert rule["nl"] == f"If {rule['premise_nl']}, {rule['conclusion_nl']}."
        assert rule["fol"] == f"{rule['premise_fol']} => {rule['conclusion_fol']}"


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


# One rule of each type, from the indices of its terms: (columns, English, logic).
RENDERED = {
    "entity2attr": (
        {"entity": 0, "attribute": 1, "amount": 14},
        "If A is a tiny cat, it has 14 spiral scales.",
        "Tiny_cat(A) => Has(Spiral_scale, 14)",
    ),
    "attrchange2attr": (
        {
            "trigger_operator": 0,
            "trigger_verb": 0,
            "trigger_attribute": 0,
            "operator": 0,
            "verb": 1,
            "attribute": 1,
            "amount": 2,
        },
        "If A loses 1 strong horn, A will drop 2 spiral scales.",
        "Lose_Strong_horn(A, 1) => Drop_Spiral_scale(A, 2)",
    ),
    "action2env": (
        {"action": 0, "environment": 0},
        "If A chases B, B will go out onto the tundra.",
        "Chase(A, B) => Enter(B, Tundra)",
    ),
    "action2attr": (
        {"action": 0, "role": 1, "operator": 1, "verb": 2, "attribute": 0, "amount": 1},
        "If A chases B, B will receive 1 strong horn.",
        "Chase(A, B) => Receive_Strong_horn(B, 1)",
    ),
    "action2state": (
        {"action": 0, "role": 0, "state": 0},
        "If A chases B, A will be deeply hungry.",
        "Chase(A, B) => Deeply_hungry(A)",
    ),
    "env2state": (
        {"environment": 0, "state": 1},
        "If A is on the tundra, A will be briefly ticklish.",
        "Tundra(A) => Briefly_ticklish(A)",
    ),
    "state2attr": (
        {"state": 0, "operator": 0, "verb": 0, "attribute": 0, "amount": 3},
        "If A is deeply hungry, A will lose 3 strong horns.",
        "Deeply_hungry(A) => Lose_Strong_horn(A, 3)",
    ),
    "place_state2attr": (
        {"environment": 0, "state": 0, "operator": 0, "verb": 0, "attribute": 0, "amount": 3},
        "If A is on the tundra and is deeply hungry, A will lose 3 strong horns.",
        "Tundra(A) & Deeply_hungry(A) => Lose_Strong_horn(A, 3)",
    ),
    "count2state": (
        {"trigger_attribute": 1, "trigger_operator": 1, "threshold": 12, "state": 0},
        "If A has more than 12 spiral scales, A will be deeply hungry.",
        "More_Spiral_scale(A, 12) => Deeply_hungry(A)",
    ),
}
SCHEMA = pa.schema([*RULE_SCHEMA, ("threshold", pa.int8())])


def test_every_type_is_written_as_the_documentation_says():
    words = load_vocabulary()
    terms = {
        "entity": [words.entities.index("tiny cat")],
        "attribute": [words.attributes.index(name) for name in ("strong horn", "spiral scale")],
        "action": [[verb.base for verb in words.actions].index("chase")],
        "environment": [[place.name for place in words.environments].index("tundra")],
        "state": [words.states.index(name) for name in ("deeply hungry", "briefly ticklish")],
    }
    names = Names({kind: np.array(indices) for kind, indices in terms.items()})
    for rule_type, (columns, *texts) in RENDERED.items():
        block = RuleBlock(
            rule_type, np.zeros(1, np.int32), {k: np.array([v], np.int16) for k, v in columns.items()}
        )
        table = block_table(block, names, "rw-0", schema=SCHEMA)
        assert [table["nl"][0].as_py(), table["fol"][0].as_py()] == texts
        parse_rule_table(table)


@pytest.mark.parametrize("dials", [{}, {"conjunction": 2, "thresholds": True}])
def test_every_row_parses_to_its_columns_in_both_forms(dials):
    table = rule_table("train", "tiny", dials=Dials(**dials))
    base = parse_rule_table(table)
    for row, rule in enumerate(table.to_pylist()):
        parts = base.rule(row)
        assert parts == parse_rule_fol(rule["fol"]) == parse_rule_nl(rule["nl"])
        assert {name: rule.get(name) for name in vars(parts)} == vars(parts)
