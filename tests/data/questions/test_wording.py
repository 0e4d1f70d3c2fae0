"""Question templates, well-formed and in use; and texts to learn from, against some typed by hand."""

import re

import pytest
from ruleworld_data.questions import SEARCH_TOKEN, boxed, training_text
from ruleworld_data.questions.wording import merge_templates
from ruleworld_data.spec import VERSIONS, Dials

from ..cases import question_table, rule_table


@pytest.mark.parametrize("version", VERSIONS)
def test_merges_hold_the_parts_once(version):
    assert len(merge_templates(version)) >= 4
    for template in merge_templates(version):
        assert template.text.count("{parts}") == 1 and template.text.count("{") == 1
        assert template.text[0].isupper() and template.text[-1] in ".?"
        assert not re.search(r"[.?;]", template.text[:-1])


def several(row):
    """Whether a rule about a change of one fires for a change of several."""
    return any(re.search(r" [2-9] x ", step["nl"]) for step in row["steps"])


# What has two readings, or reads badly, in data 1.1: pattern of the question, what else holds of it, where it is.
TWO_READINGS = {
    "a count stated and asked for": (
        r"^(?!.*(?:\bends? up| in the end))",
        lambda row: "Has(x" in row["facts"][0],
        "single_rule",
    ),
    "a count now, of which a kind's rule tells": (r" have now\?", several, "multi_hop_2"),
    "a change of several at once": (r"^(?!.* one by one)", several, "multi_rule_2"),
    "changes on the way": (r"^(?!.* one by one)", several, "multi_hop_3"),
    "an indirect question after a colon": (r": (?:how|what|in|into) ", bool, "multi_rule_4"),
    "a cause before who it is about": (r"(?i)\binto which state ", bool, "single_rule"),
    "the number of them, or of what they lose": (r" their number\?", bool, "unknown_1"),
    "one ties a cow": (r"\b(?:ties|tied) (?!up|it up)", bool, "multi_hop_2"),
}


@pytest.mark.parametrize("name", TWO_READINGS)
def test_data_1_2_has_one_reading(name):
    pattern, also, subtask = TWO_READINGS[name]
    made = {"dials": Dials().reaching(subtask)}
    old, new = (question_table(subtask, "test", version=v, **made).to_pylist() for v in VERSIONS)
    found = [i for i, row in enumerate(old) if re.search(pattern, row["question"]) and also(row)]
    assert found and not [new[i]["question"] for i in found if re.search(pattern, new[i]["question"])]
    for row, other in zip(old, new, strict=True):
        number = row["id"].rpartition("-")[2]
        assert row | {"question": other["question"], "id": f"{subtask}-test-1.2-{number}"} == other


def test_rules_of_data_1_2_say_who_has_what():
    old, new = (rule_table("train", "tiny", version=version).to_pylist() for version in VERSIONS)
    for row, other in zip(old, new, strict=True):
        fol = {name: other[name].replace("Has(A, ", "Has(") for name in ("fol", "conclusion_fol")}
        assert row == other | fol and "Has(" not in other["fol"].replace("Has(A, ", "")


ROW = {
    "steps": [
        {"nl": "The cat is in the den, so the cat is sad.", "fol": "In(x, Den) => Sad(x)"},
        {"nl": "The cat is sad, so it loses 1 fin.", "fol": "Sad(x) => Lose_Fin(x, 1)"},
    ],
    "answers": ["12", "deeply hungry"],
}


def test_texts_typed_by_hand():
    assert training_text(ROW) == (
        "[Step 1] The cat is in the den, so the cat is sad.\n"
        "[Step 2]<search> The cat is sad, so it loses 1 fin.\n"
        "[Answer] \\boxed{12, deeply hungry}"
    )
    logic = "[Step 1] In(x, Den) => Sad(x)\n[Step 2] Sad(x) => Lose_Fin(x, 1)\n[Answer] \\boxed{12, deeply hungry}"
    assert training_text(ROW, "fol", None) == logic
    assert training_text(ROW, "fol", "<look>", "before") == logic.replace("[Step 2]", "<look>[Step 2]")
    behind = logic.replace(" =>", "<look> =>")
    assert training_text(ROW, "fol", "<look>", "premise") == behind
    count = {"nl": "It is sad, so it has 1 fin. A cat has 13 fins: 13 + 1 = 14. It had 2."}
    assert training_text({"steps": [count], "answers": ["14"]}, place="premise") == (
        "[Step 1] It is sad<search>, so it has 1 fin. A cat<search> has 13 fins: 13 + 1 = 14. It had 2.\n"
        "[Answer] \\boxed{14}"
    )
    assert training_text(ROW, "fol", None, mark="<step>") == logic.replace("[Step", "<step>[Step")
    assert SEARCH_TOKEN == "<search>" and boxed(["9"]) == r"\boxed{9}"


def test_answers_have_the_names_that_the_steps_use():
    steps = [
        {
            "nl": "The frog enters the cat's lea, so the frog is at its wits' end deep down.",
            "fol": "Meadow(x)",
        },
        {
            "nl": "The frog is deeply desperate, so it boards the metro tube.",
            "fol": "Enter(x, Subway_tunnel)",
        },
    ]
    row = {"steps": steps, "answers": ["meadow", "subway tunnel", "deeply desperate", "12", "muddy fen"]}
    worded = r"\boxed{lea, metro tube, deeply desperate, 12, muddy fen}"  # what a text says last; else the usual name
    assert training_text(row).endswith(worded)
    del steps[1]
    assert training_text(row).endswith(
        r"\boxed{lea, subway tunnel, at its wits' end deep down, 12, muddy fen}"
    )
    assert training_text(row, "fol").endswith(
        r"\boxed{meadow, subway tunnel, deeply desperate, 12, muddy fen}"
    )
