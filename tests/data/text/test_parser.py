"""Texts and parts are inverse: a renderer written here, from the published grammar, is the reference."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruleworld_data.text import (
    Fact,
    ParsedRule,
    Query,
    parse_facts,
    parse_query,
    parse_rule_fol,
    parse_rule_nl,
)
from ruleworld_data.verify import parse_rule_table
from ruleworld_data.verify.report import Findings
from ruleworld_data.verify.rulebase import TableReader
from ruleworld_data.world import load_vocabulary

WORDS = load_vocabulary()
PLURAL = dict(zip(WORDS.attributes, WORDS.attribute_plurals, strict=True))
ACTION = {verb.base: verb for verb in WORDS.actions}
PLACE = {place.name: place for place in WORDS.environments}
VERBS = {"minus": WORDS.minus, "plus": WORDS.plus}

EXAMPLES = [
    (
        "Tiny_cat(A) => Has(Strong_horn, 14)",
        "If A is a tiny cat, it has 14 strong horns.",
        ParsedRule("entity2attr", entity="tiny cat", attribute="strong horn", amount=14),
    ),
    (
        "Lose_Strong_fin(A, 1) => Drop_Mineral_scale(A, 2)",
        "If A loses 1 strong fin, A will drop 2 mineral scales.",
        ParsedRule(
            "attrchange2attr",
            trigger_attribute="strong fin",
            trigger_operator="minus",
            attribute="mineral scale",
            operator="minus",
            amount=2,
        ),
    ),
    (
        "Attack(A, B) => Enter(B, Bridge)",
        "If A attacks B, B will step onto the bridge.",
        ParsedRule("action2env", action="attack", environment="bridge"),
    ),
    (
        "Attack(A, B) => Get_Stormy_bead(A, 1)",
        "If A attacks B, A will get 1 stormy bead.",
        ParsedRule(
            "action2attr", action="attack", role="actor", attribute="stormy bead", operator="plus", amount=1
        ),
    ),
    (
        "Attack(A, B) => Completely_numb(B)",
        "If A attacks B, B will be completely numb.",
        ParsedRule("action2state", action="attack", role="target", state="completely numb"),
    ),
    (
        "Bridge(A) => Slightly_disappointed(A)",
        "If A is on the bridge, A will be slightly disappointed.",
        ParsedRule("env2state", environment="bridge", state="slightly disappointed"),
    ),
    (
        "Deeply_hungry(A) => Lose_Crystalline_tongue(A, 1)",
        "If A is deeply hungry, A will lose 1 crystalline tongue.",
        ParsedRule(
            "state2attr", state="deeply hungry", attribute="crystalline tongue", operator="minus", amount=1
        ),
    ),
]
DIALLED_EXAMPLES = [
    (
        "Bridge(A) & Deeply_hungry(A) => Lose_Strong_fin(A, 2)",
        "If A is on the bridge and is deeply hungry, A will lose 2 strong fins.",
        ParsedRule(
            "place_state2attr",
            environment="bridge",
            state="deeply hungry",
            attribute="strong fin",
            operator="minus",
            amount=2,
        ),
    ),
    (
        "More_Strong_horn(A, 12) => Deeply_hungry(A)",
        "If A has more than 12 strong horns, A will be deeply hungry.",
        ParsedRule(
            "count2state",
            trigger_attribute="strong horn",
            trigger_operator="plus",
            threshold=12,
            state="deeply hungry",
        ),
    ),
    (
        "Fewer_Strong_horn(A, 1) => Deeply_hungry(A)",
        "If A has fewer than 1 strong horn, A will be deeply hungry.",
        ParsedRule(
            "count2state",
            trigger_attribute="strong horn",
            trigger_operator="minus",
            threshold=1,
            state="deeply hungry",
        ),
    ),
]


def symbol(name):
    return name.capitalize().replace(" ", "_")


def count(number, attribute):
    return f"{number} {attribute if number == 1 else PLURAL[attribute]}"


@st.composite
def rules(draw):
    """A rule as (FOL, English, parts), rendered by the grammar of the published table."""
    attribute, other = draw(st.lists(st.sampled_from(WORDS.attributes), min_size=2, max_size=2, unique=True))
    amount = draw(st.integers(0, 127))
    operator = draw(st.sampled_from(["minus", "plus"]))
    verb = draw(st.sampled_from(VERBS[operator]))
    who, role = draw(st.sampled_from([("A", "actor"), ("B", "target")]))
    action = ACTION[draw(st.sampled_from(sorted(ACTION)))]
    place = PLACE[draw(st.sampled_from(sorted(PLACE)))]
    state, entity = draw(st.sampled_from(WORDS.states)), draw(st.sampled_from(WORDS.entities))
    change = {"attribute": attribute, "operator": operator, "amount": amount}

    def effect(subject):
        return (
            f"{verb.base.capitalize()}_{symbol(attribute)}({subject}, {amount})",
            f"{subject} will {verb.base} {count(amount, attribute)}",
        )

    rule_type = draw(st.sampled_from([example[2].type for example in EXAMPLES + DIALLED_EXAMPLES]))
    acts = (f"{symbol(action.base)}(A, B)", f"A {action.third} B")
    if rule_type == "entity2attr":
        article = "an" if entity[0] in "aeiou" else "a"
        halves = (
            (f"{symbol(entity)}(A)", f"A is {article} {entity}"),
            (
                f"Has({symbol(attribute)}, {amount})",
                f"it has {count(amount, attribute)}",
            ),
        )
        parts = {"entity": entity, "attribute": attribute, "amount": amount}
    elif rule_type == "attrchange2attr":
        sign = draw(st.sampled_from(["minus", "plus"]))
        cause = draw(st.sampled_from(VERBS[sign]))
        trigger = (f"{cause.base.capitalize()}_{symbol(other)}(A, 1)", f"A {cause.third} 1 {other}")
        halves, parts = (
            (trigger, effect("A")),
            {"trigger_attribute": other, "trigger_operator": sign} | change,
        )
    elif rule_type == "action2env":
        arrival = f"Enter(B, {symbol(place.name)})", f"B will {place.goal} {place.article} {place.name}"
        halves, parts = (acts, arrival), {"action": action.base, "environment": place.name}
    elif rule_type == "action2attr":
        halves, parts = (acts, effect(who)), {"action": action.base, "role": role} | change
    elif rule_type == "action2state":
        halves = acts, (f"{symbol(state)}({who})", f"{who} will be {state}")
        parts = {"action": action.base, "role": role, "state": state}
    elif rule_type == "env2state":
        where = f"{symbol(place.name)}(A)", f"A is {place.preposition} {place.article} {place.name}"
        halves = where, (f"{symbol(state)}(A)", f"A will be {state}")
        parts = {"environment": place.name, "state": state}
    elif rule_type == "place_state2attr":
        where = f"A is {place.preposition} {place.article} {place.name} and is {state}"
        halves = (f"{symbol(place.name)}(A) & {symbol(state)}(A)", where), effect("A")
        parts = {"environment": place.name, "state": state} | change
    elif rule_type == "count2state":
        sign, word = draw(st.sampled_from([("minus", "fewer"), ("plus", "more")]))
        premise = f"{word.capitalize()}_{symbol(attribute)}(A, {amount})"
        halves = (
            (premise, f"A has {word} than {count(amount, attribute)}"),
            (f"{symbol(state)}(A)", f"A will be {state}"),
        )
        parts = {
            "trigger_attribute": attribute,
            "trigger_operator": sign,
            "threshold": amount,
            "state": state,
        }
    else:
        halves, parts = ((f"{symbol(state)}(A)", f"A is {state}"), effect("A")), {"state": state} | change
    (premise_fol, premise_nl), (conclusion_fol, conclusion_nl) = halves
    return (
        f"{premise_fol} => {conclusion_fol}",
        f"If {premise_nl}, {conclusion_nl}.",
        ParsedRule(rule_type, **parts),
    )


@pytest.mark.parametrize(("fol", "nl", "rule"), [*EXAMPLES, *DIALLED_EXAMPLES])
def test_the_published_examples_parse(fol, nl, rule):
    assert parse_rule_fol(fol) == parse_rule_nl(nl) == rule


@given(rules())
@settings(max_examples=300, deadline=None)
def test_text_to_parts_undoes_parts_to_text(case):
    fol, nl, rule = case
    assert parse_rule_fol(fol) == rule
    assert parse_rule_nl(nl) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tiny_cat(A)",
        "Tiny_cat(A) => Has(Strong_horn, 14) => Enter(A, Bridge)",
        "Tiny_cat(A) => Has(Strong_horn, 014)",
        "Tiny_cat(A) => Has(Strong_horn, -1)",
        "Tiny_cat(A) => Has(Strong_horn, 3.5)",
        "Tiny_cat(A) => Has(B, Strong_horn, 14)",
        "Tiny_cat(B) => Has(Strong_horn, 14)",
        "Tiny_cat(A) => Has(A, Strong_horn, 14)",
        "tiny_cat(A) => Has(Strong_horn, 14)",
        "Tiny_Cat(A) => Has(Strong_horn, 14)",
        "Tiny_cat(A) => Enter(A, Bridge)",
        "In(A, Bridge) => Deeply_hungry(A)",
        "Lose_Strong_fin(A, 2) => Drop_Mineral_scale(A, 2)",
        "Destroy_Strong_fin(A, 1) => Drop_Mineral_scale(A, 2)",
        "Attack(A, B) => Enter(A, Bridge)",
        "Attack(B, A) => Enter(B, Bridge)",
        "Attack(A, A) => Enter(B, Bridge)",
        "Tiny_cat(A) => Has(Strong_horn, 14) ",
        "Tiny_cat(A) => Has(B, 14)",
        "Attack(A, B) => Bridge(B)",
        "Enter(A, Bridge) => Deeply_hungry(A)",
        "Bridge(A) => Has(Strong_horn, 14)",
        "Deeply_hungry(A) & Bridge(A) => Lose_Strong_fin(A, 2)",
        "Bridge(A) & Deeply_hungry(B) => Lose_Strong_fin(A, 2)",
        "Bridge(A) & Deeply_hungry(A) & Briefly_ticklish(A) => Lose_Strong_fin(A, 2)",
        "Bridge(A) & Tiny_cat(A) => Lose_Strong_fin(A, 2)",
        "Bridge(A) & Desert(A) => Lose_Strong_fin(A, 2)",
        "Bridge(A) & Deeply_hungry(A) => Briefly_ticklish(A)",
        "Deeply_hungry(A) & Briefly_ticklish(A) => Lose_Strong_fin(A, 2)",
        "More_Strong_horn(B, 12) => Deeply_hungry(B)",
        "Lose_Strong_horn(A, 1) => More_Strong_horn(A, 12)",
        "More_Strong_horn(A, 12) => Lose_Strong_fin(A, 2)",
    ],
)
def test_other_fol_is_refused_by_name(text):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_rule_fol(text)
    assert (
        repr(text) in str(caught.value)
        or repr(text.split(" => ")[0]) in str(caught.value)
        or text.split(" => ")[-1] in str(caught.value)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A is a tiny cat, it has 14 strong horns.",
        "If A is a tiny cat, it has 14 strong horns",
        "If A is an tiny cat, it has 14 strong horns.",
        "If A is a elderly cat, it has 14 strong horns.",
        "If A is a tiny cat, it has 14 strong horn.",
        "If A is a tiny cat, it has 1 strong horns.",
        "If A is a tiny cat, it has 14 strong unicycles.",
        "If A is a tiny cat, B has 14 strong horns.",
        "If A loses 2 strong fins, A will drop 2 mineral scales.",
        "If A is in the bridge, A will be slightly disappointed.",
        "If A attacks B, B will step onto bridge.",
        "If A attacks B, A will step onto the bridge.",
        "If A attack B, B will step onto the bridge.",
        "If A is deeply hungry, A loses 1 crystalline tongue.",
        "If A is deeply hungry, A will destroy 1 crystalline tongue.",
        "If A attacks B, B will enter the bridge.",
        "If A attacks B, B will step into the bridge.",
        "If A is on the bridge and deeply hungry, A will lose 2 strong fins.",
        "If A is deeply hungry and is on the bridge, A will lose 2 strong fins.",
        "If A is on the bridge and is deeply hungry and briefly ticklish, A will lose 2 strong fins.",
        "If A is on the bridge and is a tiny cat, A will lose 2 strong fins.",
        "If A is on the bridge and is deeply hungry and in the desert, A will lose 2 strong fins.",
        "If A has more than 12 strong horn, A will be deeply hungry.",
        "If A has more than 12 strong horns, it has 4 strong fins.",
        "If A has at least 12 strong horns, A will be deeply hungry.",
    ],
)
def test_other_english_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_rule_nl(text)


def test_facts_and_queries():
    text = (
        "Tiny_cat(x) & Elderly_pig(y) & Has(x, Mineral_fur, 12) & Lose_Strong_fin(x, 2) & Attack(y, x) & "
        "Bridge(x)"
    )
    assert parse_facts("Bridge(x)") == parse_facts("Enter(x, Bridge)")
    assert parse_facts(text) == (
        Fact("is", "x", "tiny cat"),
        Fact("is", "y", "elderly pig"),
        Fact("has", "x", "mineral fur", number=12),
        Fact("change", "x", "strong fin", operator="minus", number=2),
        Fact("act", "y", "attack", other="x"),
        Fact("in", "x", "bridge"),
    )
    assert parse_query("Has(x, Mineral_fur, ?)") == Query("has", "x", "mineral fur")
    assert parse_query("In(y, ?)") == Query("in", "y")
    assert parse_query("State(x, ?, Attack)") == Query("state", "x", "attack")
    assert parse_query("State(x, ?, In)") == Query("state", "x", "in")
    assert parse_query("State(x, ?, Has, Mineral_fur)") == Query("state_of_count", "x", "mineral fur")


@pytest.mark.parametrize(
    "text", ["", "Tiny_cat", "Tiny_cat(z)", "Tiny_cat(x) &Attack(x, y)", "Attack(x, x)", "In(x)"]
)
def test_other_facts_are_refused(text):
    with pytest.raises(ValueError, match="cannot read the fact"):
        parse_facts(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Has(x, Mineral_fur)",
        "In(z, ?)",
        "State(x, ?)",
        "Has(x, Mineral_fur, 3)",
        "State(x, ?, In, Mineral_fur)",
    ],
)
def test_other_queries_are_refused(text):
    with pytest.raises(ValueError, match="cannot read the query"):
        parse_query(text)


def table(cases, **changes):
    columns = {
        "id": pa.array(range(len(cases)), pa.int32()),
        "fol": [c[0] for c in cases],
        "nl": [c[1] for c in cases],
    }
    for half, side in (("premise", 0), ("conclusion", 1)):
        columns[f"{half}_fol"] = [case[0].split(" => ")[side] for case in cases]
        columns[f"{half}_nl"] = [case[1][3:-1].split(", ")[side] for case in cases]
    for name in vars(cases[0][2]):
        kind = pa.int8() if name in ("amount", "threshold") else pa.string()
        columns[name] = pa.array([getattr(case[2], name) for case in cases], kind)
    return pa.table(columns | changes)


@given(st.lists(rules(), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_table_parses_to_the_same_parts_as_its_rows(cases):
    base = parse_rule_table(table(cases))
    assert [base.rule(row) for row in range(len(base))] == [case[2] for case in cases]
    same_text = [[a[0] == b[0] for b in cases] for a in cases]
    assert (base["fol_key"][:, None] == base["fol_key"][None, :]).tolist() == same_text


def test_typed_columns_cover_every_type():
    examples = EXAMPLES + DIALLED_EXAMPLES
    base = parse_rule_table(table(examples))
    assert [base.rule(row) for row in range(10)] == [example[2] for example in examples]


@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("fol", "Tiny_cat(A) => Has(Strong_horn, 15)", "rule_texts"),
        ("fol", "Tiny_cat(A) -> Has(Strong_horn, 14)", "rule_fol"),
        ("fol", None, "rule_fol"),
        ("nl", "If A is a tiny cat, it has 14 strong horn.", "rule_nl"),
        ("nl", "A is a tiny cat, it has 14 strong horns.", "rule_nl"),
        ("nl", "If A is a tiny cat; it has 14 strong horns.", "rule_nl"),
        ("premise_nl", "A is a tiny dog", "rule_halves"),
        ("conclusion_fol", None, "rule_halves"),
        ("entity", "tiny dog", "rule_columns"),
        ("role", "actor", "rule_columns"),
        ("role", "bystander", "rule_columns"),
        ("attribute", None, "rule_columns"),
        ("type", "state2attr", "rule_columns"),
        ("amount", 15, "rule_columns"),
        ("threshold", 3, "rule_columns"),
    ],
)
def test_a_changed_cell_is_found_and_named(column, value, check):
    good = table(EXAMPLES)
    values = good.column(column).to_pylist()
    bad = good.set_column(
        good.column_names.index(column),
        column,
        pa.array([value, *values[1:]], good.schema.field(column).type),
    )
    findings = Findings()
    TableReader().read(bad.to_batches(), findings)
    assert findings[check].failures == 1
    assert "rule 0" in findings[check].examples[0]
    with pytest.raises(ValueError, match="rule 0"):
        parse_rule_table(bad)


def test_a_table_without_fol_is_refused():
    with pytest.raises(ValueError, match="id and fol"):
        parse_rule_table(pa.table({"id": pa.array([1], pa.int32()), "nl": ["If"]}))
