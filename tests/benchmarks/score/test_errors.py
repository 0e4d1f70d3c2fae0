"""Error classes on hand-written answers, in both languages, and on the gold proofs with one thing changed."""

import re

import pytest
from ruleworld_data.questions import training_text
from rwbench.score.errors import ERROR_CLASSES, diagnose

# A tiny fox is bound (B), enters the deck, starves, gets 2 fins; gaining a fin gives 3 essences: 8 + 6 = 14.
RULES = {
    1: {"type": "action2env", "operator": None, "environment": "starship deck"},
    2: {"type": "env2state", "operator": None, "state": "completely starving"},
    3: {"type": "state2attr", "operator": "plus", "attribute": "fragrant tail", "amount": 2},
    4: {
        "type": "attrchange2attr",
        "operator": "plus",
        "attribute": "glossy whisker",
        "amount": 3,
        "premise_fol": "Gain_Fragrant_tail(A, 1)",
    },
    5: {"type": "entity2attr", "operator": None, "attribute": "glossy whisker", "amount": 8},
}
STEPS = [
    {"rule_ids": [1], "fol": "Bind(y, x) => In(x, Starship_deck)"},
    {"rule_ids": [2], "fol": "In(x, Starship_deck) => Completely_starving(x)"},
    {"rule_ids": [3], "fol": "Completely_starving(x) => Get_Fragrant_tail(x, 2)"},
    {
        "rule_ids": [4, 5],
        "fol": "Get_Fragrant_tail(x, 2) => Gain_Glossy_whisker(x, 6); Tiny_fox(x) => Has(x, Glossy_whisker, 8); "
        "Has(x, Glossy_whisker, 8 + 6 = 14)",
    },
]
NL_START = "The fox enters the starship deck. It is completely starving. "
TAILS, FOL_TAILS, MISALIGNED = "It gets 2 fragrant tails", "Get_Fragrant_tail(x, 2)", "operator_misalignment"
FOL_START = "Bind(y, x) => In(x, Starship_deck). In(x, Starship_deck) => Completely_starving(x). "


def sample(output, answers, retrieved=None, gold=("14",), **fields):
    base = {"error": None, "outcome": "ok", "output": output, "answers": answers, "gold_answers": list(gold)}
    return base | {"retrieved": retrieved} | fields


@pytest.mark.parametrize(
    ("output", "answer", "error", "rule"),
    [
        # Rule omission: only the initial attribute, the chain never walked; the chain left after the first steps.
        ("A tiny fox has 8 glossy whiskers.", "8", "rule_omission", 1),
        (NL_START + "It has 8 glossy whiskers.", "8", "rule_omission", 3),
        (FOL_START + "Has(x, Glossy_whisker, 8)", "8", "rule_omission", 3),
        (NL_START + TAILS + ", so it gains 2 x 3 = 6 glossy whiskers.", "6", "rule_omission", 5),
        # Incorrect use: three fins for two, the effect of one unit for that of two, a slip in the last sum.
        (NL_START + "It gets 3 fragrant tails.", "17", "incorrect_use", 3),
        (NL_START + TAILS + ", so it gains 3 glossy whiskers. 8 + 3 = 11.", "11", "incorrect_use", 4),
        (FOL_START + FOL_TAILS + " => Gain_Glossy_whisker(x, 3)", "11", "incorrect_use", 4),
        (NL_START + TAILS + " and gains 6 glossy whiskers: 8 + 6 = 15.", "15", "incorrect_use", None),
        # Operator misalignment: "get" is not seen to trigger "gain"; the other sign.
        (NL_START + TAILS + ". No rule is about getting them. It has 8 glossy whiskers.", "8", MISALIGNED, 4),
        (FOL_START + FOL_TAILS + ". Has(x, Glossy_whisker, 8)", "8", MISALIGNED, 4),
        (NL_START + TAILS + ", so it loses 6 glossy whiskers: 2.", "2", MISALIGNED, 4),
        (FOL_START + FOL_TAILS + " => Lose_Glossy_whisker(x, 6)", "2", MISALIGNED, 4),
        ("", "99", "unexplained", None),  # no steps
    ],
)
def test_hand_written_answers(output, answer, error, rule):
    found = diagnose(sample(f"{output}\n[Answer] \\boxed{{{answer}}}", [answer]), STEPS, RULES)
    assert found == (error, 0, rule) and error in ERROR_CLASSES


def test_with_one_verb_an_early_stop_is_an_omission():
    rules = RULES | {4: RULES[4] | {"premise_fol": "Get_Fragrant_tail(A, 1)"}}
    text = NL_START + "It gets 2 fragrant tails. It has 8 glossy whiskers. \\boxed{8}"
    assert diagnose(sample(text, ["8"]), STEPS, rules).error == "rule_omission"


def test_a_rule_that_was_not_retrieved_is_a_retrieval_miss():
    text = NL_START + "It has 8 glossy whiskers. \\boxed{8}"
    assert diagnose(sample(text, ["8"], [[1, 2, 5], [4]]), STEPS, RULES) == ("retrieval_miss", 0, 3)
    # The first rule that was passed over counts: rule 3 was there, that rule 4 was not comes later.
    assert diagnose(sample(text, ["8"], [[1, 2, 3, 5]]), STEPS, RULES) == ("rule_omission", 0, 3)
    assert diagnose(sample("\\boxed{8}", ["8"], [[1, 2, 3, 5]]), STEPS, RULES) == ("retrieval_miss", 0, 4)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"answers": ["14"]}, "correct"),
        ({"answers": [], "outcome": "refused_format"}, "format"),
        ({"answers": ["14", "3"]}, "format"),
        ({"answers": [], "outcome": "context_exceeded"}, "no_answer"),
        ({"answers": None, "outcome": "no_output"}, "no_answer"),
        ({"answers": [], "outcome": "length"}, "no_answer"),
    ],
)
def test_answers_that_need_no_proof(fields, error):
    assert diagnose(sample("", **({"answers": []} | fields)), STEPS, RULES).error == error


def test_failed_questions_and_methods_that_only_retrieve_have_no_class():
    assert diagnose(sample("", None), STEPS, RULES) is None
    assert diagnose(sample("", ["1"], error="boom"), STEPS, RULES) is None


def test_only_the_wrong_part_of_a_parallel_question_is_looked_at():
    steps = [STEPS[3], {"rule_ids": [5], "fol": "Tiny_fox(x) => Has(x, Glossy_whisker, 8)"}]
    text = "[Step 1] It gets 2 fragrant tails, so it gains 6 glossy whiskers: 8 + 6 = 14.\n[Step 2] It has nothing."
    found = diagnose(sample(text + " \\boxed{14, 0}", ["14", "0"], gold=("14", "8")), steps, RULES)
    assert found == ("rule_omission", 1, 5)


@pytest.fixture(scope="module")
def proofs(workspace):
    """Every kind of question, with its rules."""
    table, found = workspace.rules("mini"), []
    for subtask in (
        "single_rule",
        "multi_rule_4",
        "multi_rule_8",
        "multi_hop_2",
        "multi_hop_3",
        "multi_hop_4",
    ):
        for question in workspace.questions(subtask, "mini"):
            found.append((question, {row["id"]: row for row in table.take(list(question.gold)).to_pylist()}))
    return found


@pytest.mark.parametrize("language", ["nl", "fol"])
def test_gold_proofs_apply_every_rule_and_a_missing_step_is_found(proofs, language):
    cut = 0
    for question, rules in proofs:
        text = training_text(question.row, language)
        wrong = ["none" for _ in question.answers]
        steps = question.row["steps"]
        found = diagnose(sample(text, wrong, gold=question.answers), steps, rules)
        assert found == ("incorrect_use", 0, None), (text, found)
        if len(question.answers) == 1 and len(steps) > 1:
            # The step goes, and so does its conclusion from the premise of the next.
            kept = re.sub(r"\[Step [23]\][^\n]*", "", text)
            found = diagnose(sample(kept, wrong, gold=question.answers), steps, rules)
            assert found.rule == steps[1]["rule_ids"][0], (kept, found)
            assert found.error in ("rule_omission", "operator_misalignment")
            cut += 1
    assert cut == 150
