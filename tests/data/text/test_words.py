"""Other words for the same: every text has one reading, nothing but texts changes, and what is no rule is refused."""

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from ruleworld_data.io import build, build_stats
from ruleworld_data.scoring.answers import same_answer
from ruleworld_data.spec import Dials, subtasks_of
from ruleworld_data.text import parse_rule
from ruleworld_data.verify import parse_rule_table
from ruleworld_data.verify.mentions import question_problems
from ruleworld_data.world import load_vocabulary, with_object
from ruleworld_data.world.forms import FORMS
from ruleworld_data.world.names import all_names

from ..cases import question_table, rule_table

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))

ALL = Dials(hops=5, conjunction=2, thresholds=True, exceptions=2)
TEXTS = ["nl", "premise_nl", "conclusion_nl", "world_id"]


@pytest.fixture(scope="module", params=[0.5, 1.0])
def dials(request):
    return replace(ALL, words=request.param)


def test_no_two_things_share_a_name():
    words, forms = load_vocabulary(), all_names()
    two, one = range(FORMS**2), range(FORMS)
    names = Counter(forms.kind(i, form) for i in range(len(words.entities)) for form in two)
    names += Counter(forms.mood(i, form) for i in range(len(words.states)) for form in two)
    for number in (0, 1):
        names += Counter(forms.counted(i, form)[number] for i in range(len(words.attributes)) for form in two)
    names += Counter(forms.place(i, form).name for i in range(len(words.environments)) for form in one)
    for part in ("base", "third"):
        names += Counter(
            getattr(forms.verb(i, form), part) for i in range(len(words.actions)) for form in one
        )
        for sign, verbs in enumerate(words.change_verbs.values()):
            names += Counter(
                getattr(forms.change(sign, i, form), part) for i in range(len(verbs)) for form in one
            )
    assert [name for name, count in names.items() if count > 1] == []
    assert not any(mark in name for name in names for mark in (",", ";", " once ", "  "))


def test_a_pronoun_stands_before_the_particle():
    """One picks it up, and does not pick up it."""
    forms = all_names()
    texts = [with_object(forms.verb(i, form).third, "it") for i in range(100) for form in range(FORMS)]
    assert "picks it up" in texts and "hems it in" in texts
    assert not [text for text in texts if re.search(r" (?:up|out|off|down|along|away|together) it$", text)]


@pytest.mark.parametrize(
    "dials", [Dials(), *(replace(ALL, words=words) for words in (0.0, 0.5, 1.0))], ids=str
)
def test_every_rule_is_read_back(dials):
    """In logic and in English, by readers that share nothing with the renderer."""
    table = rule_table("train", "tiny", dials=dials)
    parse_rule_table(table)  # finds no two texts that differ, and no column that says something else
    rules = table.to_pylist()
    assert len({rule["nl"] for rule in rules}) == len(rules)
    for rule in rules:
        text = rule["nl"].lower()
        for first, again in (
            ("another creature", "the other creature"),
            ("some other being", "that other being"),
        ):
            assert again not in text.partition(first)[0]  # nobody is met again who was not met


def test_only_texts_change(dials):
    worded, usual = (rule_table("train", "tiny", dials=each) for each in (dials, ALL))
    assert worded.drop_columns(TEXTS) == usual.drop_columns(TEXTS)
    for subtask in subtasks_of(ALL):
        ours, theirs = (
            question_table(subtask, "test", "tiny", dials=each).to_pylist() for each in (dials, ALL)
        )
        for row, other in zip(ours, theirs, strict=True):
            same = ("id", "gold_rule_ids", "facts", "queries", "skeleton", "answer_types", "n_hops")
            assert [row[name] for name in same] == [other[name] for name in same]
            assert [step["fol"] for step in row["steps"]] == [step["fol"] for step in other["steps"]]
            assert [answer for answer in row["answers"] if answer.isdigit()] == [
                answer for answer in other["answers"] if answer.isdigit()
            ]


@pytest.mark.parametrize(("text", "reading"), CASES["readings"])
def test_a_reading_or_a_refusal(text, reading):
    if not reading:
        with pytest.raises(ValueError, match="cannot read"):
            parse_rule("nl", text)
    else:
        kind, premise, _ = parse_rule("nl", text)
        assert kind == reading and premise.operator in (None, "plus")


@pytest.mark.parametrize(("answer", "gold", "same"), CASES["answers"])
def test_an_answer_may_be_in_any_words(answer, gold, same):
    assert same_answer(answer, gold) is same


def test_verify_finds_names_with_an_apostrophe():
    asked = [("Tiny_cat(x) & Magically_desperate(x)", "Has(x, Strong_horn, ?)")]
    text = "A tiny cat is magically at its wits' end. How many strong horns does it have?"
    assert question_problems(text, asked) == [] != question_problems(text.replace("wits", "wit"), asked)


def test_stats_tell_how_many_gold_rules_share_a_word(built, tmp_path):
    """At 1 some do by chance: "mountain" is a word of two names."""
    build(tmp_path, "tiny", dials=Dials(words=1.0))
    counted = (build_stats(folder).questions.set_index("questions") for folder in (built, tmp_path))
    usual, other = (table["shared words"] for table in counted)
    for subtask in ("single_rule", "multi_rule_4", "multi_hop_4"):
        assert usual[subtask] > 0.8 > 0.4 > other[subtask]


def test_a_step_counts_in_the_words_of_its_rule():
    dials = Dials(words=1.0)
    rules = {rule["id"]: rule["nl"] for rule in rule_table("train", "tiny", dials=dials).to_pylist()}
    for row in question_table("multi_hop_3", "test", "tiny", dials=dials).to_pylist():
        last = row["steps"][-1]
        (initial,) = re.findall(r" has (\d+ [^:]+): ", last["nl"])
        assert initial in rules[last["rule_ids"][-1]]


@pytest.mark.parametrize("text", CASES["fol"])
def test_other_fol_is_refused_by_name(text):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_rule("fol", text)
    premise, conclusion = text.split(" => ")[0], text.split(" => ")[-1]
    assert any(part in str(caught.value) for part in (repr(text), repr(premise), conclusion))


@pytest.mark.parametrize("text", CASES["nl"])
def test_other_english_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_rule("nl", text)
