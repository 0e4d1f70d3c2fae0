"""Question templates: enough of them, well-formed, and in use."""

from __future__ import annotations

import re

import pytest
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.questions import clause_templates, merge_templates, question_templates
from ruleworld_data.spec import VERSIONS

# Who starts what, and what may be asked then: typed from the seven rule types.
PAIRS = [
    ("kind", "count"),
    ("change", "count"),
    ("actor", "count"),
    ("target", "count"),
    ("state", "count"),
    ("environment", "count"),
    ("target", "environment"),
    ("actor", "state_of_action"),
    ("target", "state_of_action"),
    ("environment", "state_of_environment"),
    ("target", "state_of_arrival"),
]
CHECKED = [*PAIRS, ("kind", "outcome")]
FILLERS = {
    "kind": {"X": "a tiny cat", "X_capital": "A tiny cat", "S": "the tiny cat", "plural": "strong horns"},
    "change": {"loses": "loses", "lost": "lost", "things": "2 strong fins"},
    "actor": {
        "does_X": "bites a tiny cat",
        "does_Y": "bites an owl",
        "does_it": "bites it",
        "did_X": "bit a tiny cat",
        "did_Y": "bit an owl",
        "done": "bitten",
        "Y": "an owl",
        "Y_capital": "An owl",
    },
    "environment": {
        "at_place": "on the bridge",
        "place": "the bridge",
        "enters": "steps onto the bridge",
        "entered": "stepped onto the bridge",
    },
    "state": {"state": "deeply hungry"},
}
FILLERS["target"] = FILLERS["actor"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", [question_templates, clause_templates])
@pytest.mark.parametrize(("start", "ask"), CHECKED)
def test_templates_need_no_slot_that_their_start_does_not_fill(make, start, ask, version):
    if make is clause_templates and ask == "outcome":
        return  # no part of a merged question
    slots = {"each": "", "chain": ""} | FILLERS["kind"] | FILLERS[start]
    templates = make(start, ask, version)
    assert [t.id for t in templates] == [t.id for t in make(start, ask)]
    assert len({t.id for t in templates}) == len({t.text for t in templates}) == len(templates)
    for template in templates:
        text = template.text.format_map(slots)
        assert "{" not in text and "  " not in text
        assert "tiny cat" in text or "it" in text.split()
        if make is question_templates:
            assert len({t.id.split(".")[0] for t in templates}) >= 6  # families
            assert text[0].isupper() and text[-1] in "?."
            assert re.fullmatch(r"[^.?]+(?:\. [A-Z][^.?]+)?[.?]", text)
        else:
            assert text[0].islower() and not re.search(r"[.?;]", text)


@pytest.mark.parametrize("version", VERSIONS)
def test_merges_hold_the_parts_once(version):
    assert len(merge_templates(version)) >= 4
    for template in merge_templates(version):
        assert template.text.count("{parts}") == 1 and template.text.count("{") == 1
        assert template.text[0].isupper() and template.text[-1] in ".?"
        assert not re.search(r"[.?;]", template.text[:-1])


# What readers of the first questions stumbled over: none may come back.
STUMBLES = {
    "an event that is none": r"^After an? (?:(?!,).)* was (?!\w+ by )",
    "in if, in once": r"\b(?:in|into|with) (?:if|once|when|given|assuming)\b",
    "ends up in put it in": r"\bin put\b",
    "a fragment with a question mark": r": (?:how|which|what|into|in) [^?]*\?$",
    "enters what one does not enter": r"\benter(?:s|ed)? the (?:starship deck|bridge|tundra|desert|ferry|oasis)\b",
    "mass nouns counted": r"\b(?:furs?|frosts?|embers?|voids?)\b",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_readers_stumbled_over_is_gone(version):
    for subtask in ("single_rule", "multi_rule_3", "multi_hop_2", "multi_hop_4"):
        for text in question_table(subtask, "train", "tiny", version=version)["question"].to_pylist():
            assert not [name for name, pattern in STUMBLES.items() if re.search(pattern, text)], text


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
    "one ties a cow": (r"\b(?:ties|tied) (?!up|it up)", bool, "multi_hop_2"),
}


@pytest.mark.parametrize("name", TWO_READINGS)
def test_data_1_2_has_one_reading(name):
    pattern, also, subtask = TWO_READINGS[name]
    old, new = (question_table(subtask, "test", version=version).to_pylist() for version in VERSIONS)
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
