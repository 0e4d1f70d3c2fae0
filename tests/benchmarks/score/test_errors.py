"""Error classes on hand-written answers, in both languages, and on the gold proofs with one thing changed."""

import re
import tomllib
from pathlib import Path

import pytest
from ruleworld_data.questions import training_text
from rwbench.score.errors import ERROR_CLASSES, diagnose

CASES = tomllib.loads(Path(__file__).with_name("errors.toml").read_text(encoding="utf-8"))
STEPS = CASES["steps"]
RULES = {int(number): {"operator": None} | rule for number, rule in CASES["rules"].items()}
NL_START = "The fox enters the starship deck. It is completely starving. "


def sample(output, answers, retrieved=None, gold=("14",), **fields):
    base = {"error": None, "outcome": "ok", "output": output, "answers": answers, "gold_answers": list(gold)}
    return base | {"retrieved": retrieved} | fields


@pytest.mark.parametrize(("output", "answer", "error", "rule"), CASES["answers"])
def test_hand_written_answers(output, answer, error, rule):
    found = diagnose(sample(f"{output}\n[Answer] \\boxed{{{answer}}}", [answer]), STEPS, RULES)
    assert found == (error, 0, rule or None) and error in ERROR_CLASSES


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


KINDS = ("single_rule", "multi_rule_4", "multi_rule_8", "multi_hop_2", "multi_hop_3", "multi_hop_4")


@pytest.mark.parametrize("language", ["nl", "fol"])
def test_gold_proofs_apply_every_rule_and_a_missing_step_is_found(workspace, language):
    cut, table = 0, workspace.rules("mini")
    for question in (each for subtask in KINDS for each in workspace.questions(subtask, "mini")):
        rules = {row["id"]: row for row in table.take(list(question.gold)).to_pylist()}
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
