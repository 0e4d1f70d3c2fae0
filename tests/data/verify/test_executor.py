"""The executor and clingo against hand-worked cases, a brute-force reference, and each other."""

from itertools import combinations, product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruleworld_data.text import parse_query
from ruleworld_data.verify import RuleIndex, execute, parse_rule_table, solve
from ruleworld_data.verify.asp import AspSolver

from ..brute_force import BruteForce
from ..cases import blocks

NAMED, WORKED, EXCEPTED, SET_ASIDE, COMPARED, CIRCLE = blocks(__file__, "derivations.txt")
RULES = [rule for _, rule in NAMED]
NUMBER = {name: number for number, (name, _) in enumerate(NAMED)}


def numbered(names):
    return tuple(NUMBER[name] for name in (names or "").split())


CASES = [(*case, numbered(names)) for *case, names in WORKED]


def rule_table(texts):
    return pa.table({"id": pa.array(range(len(texts)), pa.int32()), "fol": pa.array(texts, pa.string())})


@pytest.fixture(scope="module")
def base():
    return parse_rule_table(rule_table(RULES))


@pytest.mark.parametrize(("facts", "query", "answer", "rules"), CASES)
def test_cases_worked_by_hand(base, facts, query, answer, rules):
    derivation = execute(facts, query, RuleIndex(base))
    assert (derivation.answer, derivation.rule_ids) == (answer, rules)


def test_gold_rules_alone_give_the_same_answer_and_so_does_clingo(base):
    index, solver = RuleIndex(base), AspSolver(base)
    for facts, query, answer, rules in CASES:
        assert execute(facts, query, index.only(rules)).answer == answer
        for rule_id in rules:
            assert execute(facts, query, index.only(set(rules) - {rule_id})).answer != answer
    scopes, own = [(facts, query) for facts, query, _, _ in CASES], [base.find(rules) for *_, rules in CASES]
    answers = [() if answer is None else (answer,) for _, _, answer, _ in CASES]
    assert solver.answers(scopes) == solver.answers(scopes, own) == answers


def test_comparisons_worked_by_hand(base):
    """A cat of 16 horns after an attack, one of 5 scales after a loss, and a pig whose fins are stated."""
    facts = (
        "Tiny_cat(x1) & Tiny_cat(y1) & Attack(y1, x1) & Tiny_cat(x2) & Lose_Strong_fin(x2, 2) & Elderly_pig(x3) & "
        "Has(x3, Strong_fin, 16) & Deeply_angry(x3)"
    )
    parts = ["Has(x1, Strong_horn, ?)", "Has(x2, Mineral_scale, ?)", "Has(x3, Strong_fin, ?)"]
    parts += ["Has(x2, Unheard_of, ?)", "Has(x3, Unheard_of, ?)"]
    index, solver = RuleIndex(base), AspSolver(base)
    for operation, of, answer, rules in COMPARED:
        query = f"{operation}({', '.join(parts[int(place)] for place in of)})"
        if rules is None:  # one individual, twice
            with pytest.raises(ValueError, match="counts of two individuals or more"):
                parse_query(query)
            continue
        derivation = execute(facts, query, index)
        assert (derivation.answer, derivation.rule_ids) == (answer, numbered(rules))
        assert solver.answers([(facts, query)]) == [() if answer is None else (answer,)]
    # A tie has no winner; two creatures of a kind are one answer.
    tie = facts.replace("Strong_fin, 16)", "Strong_fin, 15)").replace("Elderly_pig", "Elderly_frog")
    assert execute(tie, f"Most({parts[0]}, {parts[2]})", index).answer is None
    alike = "Most(Has(x1, Strong_fin, ?), Has(x2, Strong_fin, ?))"
    assert execute("Tiny_cat(x1) & Tiny_cat(x2)", alike, index).answer == "tiny cat"


@pytest.mark.parametrize(("facts", "attribute", "answer", "rules"), SET_ASIDE)
def test_the_rule_with_most_conditions_sets_others_aside(facts, attribute, answer, rules):
    base, query = parse_rule_table(rule_table([rule for (rule,) in EXCEPTED])), f"Has(x, {attribute}, ?)"
    rules = tuple(map(int, rules.split()))
    derivation = execute(facts, query, RuleIndex(base))
    assert (derivation.answer, derivation.rule_ids) == (answer, rules)
    answers = AspSolver(base).answers([(facts, query)] * 2, [base.find(rules), base.find(range(11))])
    assert answers == [(answer,)] * 2


def test_solve_takes_a_row_and_a_table_or_an_index(base):
    row = {"facts": ["Tiny_cat(x)", "Bridge(x)"], "queries": ["Has(x, Strong_horn, ?)", "State(x, ?, In)"]}
    assert solve(row, rule_table(RULES)) == ["14", "deeply hungry"]
    assert solve(row, RuleIndex(base).only({0})) == ["14", None]


def test_two_values_are_an_error(base):
    index = RuleIndex(base)
    with pytest.raises(ValueError, match="2 values"):
        execute("Tiny_cat(x) & Has(x, Strong_horn, 3)", "Has(x, Strong_horn, ?)", index)
    with pytest.raises(ValueError, match="2 values"):
        execute("Attack(y, x) & Castle(x)", "In(x, ?)", index)
    assert len(AspSolver(base).answers([("Attack(y, x) & Castle(x)", "In(x, ?)")])[0]) == 2


def test_circular_rules_are_an_error():
    base = parse_rule_table(rule_table([rule for (rule,) in CIRCLE]))
    with pytest.raises(ValueError, match="triggers itself"):
        execute("Tiny_cat(x) & Lose_Strong_fin(x, 1)", "Has(x, Mineral_scale, ?)", RuleIndex(base))
    with pytest.raises(ValueError, match="cycle"):
        AspSolver(base)


def test_clingo_refuses_numbers_that_wrap_and_rules_that_are_not_there(base):
    solver, large = AspSolver(base), "Has(x, Mineral_scale, 5) & Gain_Strong_fin(x, 900000000)"
    assert solver.answers([("Has(x, Mineral_scale, 5000000)", "Has(x, Mineral_scale, ?)")]) == [("5000000",)]
    with pytest.raises(ValueError, match="32-bit"):
        solver.answers([(large, "Has(x, Mineral_scale, ?)")])
    with pytest.raises(ValueError, match="not in the rule base"):
        solver.answers([("Bridge(x)", "In(x, ?)")], [base.find([99])])


# A random small world that keeps none of the generator's constraints: several rules per key, shared attributes, long
# chains. Only cycles are left out, by letting attribute changes run upwards.
ATTRIBUTES = ["Strong_horn", "Strong_fin", "Mineral_scale", "Mineral_horn"]
CHANGES = [f"{verb}_{{}}({{}}, {n})" for verb in ("Lose", "Drop", "Gain", "Get") for n in (1, 2, 3)]
STATES, PLACES = ("Deeply_sad", "Deeply_angry"), ("Bridge", "Castle")
RULES_OF = {
    "entity": [f"{kind}(A) => Has({name}, 20)" for kind in ("Tiny_cat", "Tiny_dog") for name in ATTRIBUTES],
    "change": [
        f"{first.format(low, 'A')} => {then.format(high, 'A')}"
        for low, high in combinations(ATTRIBUTES, 2)
        for first, then in product(CHANGES[::3], CHANGES)
    ],
    "place": [f"Attack(A, B) => Enter(B, {place})" for place in PLACES],
    "state": [f"Attack(A, B) => {state}({who})" for state in STATES for who in "AB"],
    "effect": [f"Attack(A, B) => {c.format(n, who)}" for c in CHANGES for n in ATTRIBUTES for who in "AB"],
    "place's state": [f"{place}(A) => {state}(A)" for place in PLACES for state in STATES],
    "state's effect": [f"{s}(A) => {c.format(n, 'A')}" for s in STATES for c in CHANGES for n in ATTRIBUTES],
}
FACTS = ["Tiny_cat(x)", "Tiny_dog(y)", "Attack(x, y)", "Attack(y, x)", "Bridge(x)", "Deeply_sad(x)"]
FACTS += ["Has(x, Mineral_horn, 7)", *(c.format(n, "x") for c in CHANGES[::4] for n in ATTRIBUTES[:2])]
QUERIES = [f"Has(x, {name}, ?)" for name in ATTRIBUTES] + [
    "In(x, ?)",
    "State(x, ?, In)",
    "State(x, ?, Attack)",
]


@given(
    st.sets(st.one_of(*map(st.sampled_from, RULES_OF.values())), min_size=1, max_size=14),
    st.lists(st.sampled_from(FACTS), min_size=1, max_size=4, unique=True),
)
@settings(max_examples=50)
def test_three_solvers_agree_on_any_small_world(rules, facts):
    texts, facts = sorted(rules), " & ".join(facts)
    base = parse_rule_table(rule_table(texts))
    by_clingo = AspSolver(base).answers([(facts, query) for query in QUERIES])
    for query, clingo in zip(QUERIES, by_clingo, strict=True):
        expected = BruteForce(texts).answers(facts, query)
        assert set(clingo) == expected, (query, texts, facts)
        if len(expected) > 1:
            with pytest.raises(ValueError, match="values"):
                execute(facts, query, RuleIndex(base))
        else:
            assert execute(facts, query, RuleIndex(base)).answer == next(iter(expected), None), (
                query,
                texts,
                facts,
            )


def test_terms_that_no_rule_knows_are_not_one_term():
    """Losing one thing that no rule mentions leaves another such thing alone."""
    index = RuleIndex(parse_rule_table(rule_table(["Tiny_cat(A) => Has(Strong_horn, 20)"])))
    facts = "Lose_Strong_fin(x, 1) & Has(x, Mineral_horn, 7)"
    assert execute(facts, "Has(x, Mineral_horn, ?)", index).answer == "7"
    assert execute(facts + " & Lose_Mineral_horn(x, 2)", "Has(x, Mineral_horn, ?)", index).answer == "5"
