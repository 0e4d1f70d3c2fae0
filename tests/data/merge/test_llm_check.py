"""Which rewordings of a merged question are accepted: one changed name, number, role or order is enough to refuse."""

from __future__ import annotations

import re

import pytest
from ruleworld_data.generate import question_table
from ruleworld_data.merge import rewording_prompt, sub_questions, why_refused
from ruleworld_data.merge.check import small_words
from ruleworld_data.questions import clause_templates, merge_templates
from ruleworld_data.spec import VERSIONS
from ruleworld_data.world import load_vocabulary

QUESTION = (
    "Taking each case on its own, say how many golden ears a creature with 13 golden ears has once it gets 2 ancient "
    "toes; which state the act itself puts a slender beetle in given that a spotted centaur strokes it; and which "
    "environment a plump otter is in if it is washed by a tiny cat."
)
SECOND = (
    "In separate scenes, can you tell which state the environment puts an elderly dog in if it enters the rice field; "
    "what number of spicy gills a swift swan has; how many velvet fins a bearded panda has when it overtakes a plump "
    "otter; and how many rusty keys a feral bear has when it becomes deeply sad?"
)
GOOD = [
    (QUESTION, QUESTION),
    (
        QUESTION,
        "Consider these separate cases: if a creature with 13 golden ears gets 2 ancient toes, how many golden ears "
        "does it have; when a slender beetle is stroked by a spotted centaur, which state does the act itself put it "
        "in; and after a plump otter has been washed by a tiny cat, which environment is it in?",
    ),
    (
        QUESTION,
        "Imagine unrelated scenes. How many golden ears would a creature with 13 golden ears have after getting 2 "
        "ancient toes? What state does the action put a slender beetle in when a spotted centaur strokes it? And "
        "finally, in which environment is a plump otter that was washed by a tiny cat?",
    ),
    (
        SECOND,
        "For each separate scenario, please determine which state the environment puts an elderly dog in once it is "
        "in the rice field, how many spicy gills are there on a swift swan, how many velvet fins does a bearded panda "
        "have if a plump otter is overtaken by it, and how many rusty keys does a feral bear have after becoming "
        "deeply sad.",
    ),
]


@pytest.mark.parametrize(("question", "wording"), GOOD)
def test_a_wording_with_the_same_content_is_accepted(question: str, wording: str) -> None:
    assert why_refused(question, wording) is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a slender beetle", "a beetle", "'beetle' is neither"),
        ("a slender beetle", "a slender badger", "slender beetle"),
        ("a slender beetle", "the slender beetle", "'slender' is neither"),
        ("13 golden", "12 golden", "13 golden ear"),
        ("13 golden ears has once it gets 2", "2 golden ears has once it gets 13", "13 golden ear"),
        ("2 ancient", "two ancient", "'gets' is neither"),
        ("with 13 golden ears", "with thirteen golden ears", "'thirteen' is neither"),
        ("with 13 golden ears ", "", "count 13"),
        ("with 13", "up to 13", "'13' is neither"),
        ("gets 2", "gets 2.5", "'gets' is neither"),
        ("gets", "loses", "get 2"),
        ("how many golden ears", "how many ancient toes", "how many golden ear"),
        ("2 ancient toes", "2 ancient toes with 3 golden ears", "is not where"),
        ("tiny cat.", "tiny cat with 13 golden ears.", "adds 'count 13"),
        ("tiny cat.", "tiny cat that follows it.", "adds 'act follow'"),
        ("tiny cat.", "tiny cat, case 3.", "'3' is neither"),
        ("tiny cat.", "tiny cat", "does not end"),
        ("strokes it", "does not stroke it", "'not' is neither"),
        ("strokes it", "isn't stroking it", '"isn\'t" is neither'),
        ("strokes it", "pulls it", "act stroke"),
        ("a spotted centaur strokes it", "it strokes a spotted centaur", "acts on the same"),
        ("a spotted centaur strokes it", "a spotted centaur is stroked by it", "acts on the same"),
        ("a spotted centaur strokes it", "a spotted centaur is stroked", "by whom"),
        ("a spotted centaur strokes it", "a spotted centaur it strokes", "acts on the same"),
        ("the act itself puts", "the environment puts", "the act"),
        ("which state the act", "what the act", "which state"),
        ("which environment", "which state", "which environment"),
        ("on its own", "here", "separate"),
        ("each case on its own, say", "it on its own, say what each has:", "'each' is neither"),
        ("tiny cat.", "tiny cat; the answer is \\boxed{5}.", "plain text"),
        ("; which", ";\nwhich", "plain text"),
        ("say", "say (" + "here and now " * 30 + ")", "length"),
    ],
)
def test_one_change_is_enough_to_be_refused(old: str, new: str, reason: str) -> None:
    assert QUESTION.count(old) >= 1
    found = why_refused(QUESTION, QUESTION.replace(old, new, 1))
    assert found is not None
    assert re.search(reason, found), found


def test_the_prompt_names_every_part() -> None:
    prompt = rewording_prompt(QUESTION)
    assert all(f"\n- {part}\n" in prompt for part in sub_questions(QUESTION)) and "{" not in prompt


def test_parts_and_creatures_keep_their_order() -> None:
    head, parts = "For each of these unrelated cases, find out ", sub_questions(QUESTION)
    assert why_refused(QUESTION, f"{head}{'; '.join(parts)}.") is None
    for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
        assert why_refused(QUESTION, f"{head}{'; '.join(parts[i] for i in order)}.")
    assert why_refused(QUESTION, f"{head}{'; '.join(parts[:2])}.")
    assert why_refused(QUESTION, f"{head}{'; '.join([*parts, parts[0]])}.")
    washed = "how many golden ears a creature with 13 golden ears has if it is washed by a tiny cat"
    question = f"{head}{washed}; and {parts[1]}."
    assert why_refused(question, question) is None
    # The other creature is asked about, or has what the first one has: all names and numbers are there.
    for swapped in (
        "how many golden ears a tiny cat has if it washes a creature with 13 golden ears",
        "how many golden ears a creature has if it is washed by a tiny cat with 13 golden ears",
    ):
        other = f"{head}{swapped}; and {parts[1]}."
        assert why_refused(question, other)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("subtask", ["multi_rule_2", "multi_rule_8"])
def test_every_template_question_asks_the_same_as_itself(subtask: str, version: str) -> None:
    for row in question_table(subtask, "test", "tiny", version=version).to_pylist():
        parts = sub_questions(row["question"])
        assert len(parts) == len(row["queries"]) == len(row["answers"])
        assert why_refused(row["question"], row["question"]) is None
        # A name of every fact is in its own part.
        for part, facts in zip(parts, row["facts"], strict=True):
            assert all(word in part for word in facts.split("(")[0].lower().split("_") if word != "has")


def test_small_words_hold_all_of_the_templates_and_none_of_the_vocabulary() -> None:
    words = load_vocabulary()
    names = [*words.entities, *words.attributes, *words.attribute_plurals, *words.states]
    verbs = [form for verb in (*words.actions, *words.minus, *words.plus) for form in vars(verb).values()]
    assert not small_words() & {part for name in (*names, *verbs) for part in name.split()}
    assert not small_words() & set(
        "not no never without unless before more least two three none they".split()
    )
    frames = " ".join(template.text for version in VERSIONS for template in merge_templates(version))
    frames += " ".join(
        t.text
        for start in ("kind", "state", "environment")
        for version in VERSIONS
        for t in clause_templates(start, "count", version)
    )
    loose = {word.strip(".,:;?").lower() for word in frames.split() if "{" not in word}
    assert loose <= small_words(), loose - small_words()


def test_places_are_entered_as_each_version_says() -> None:
    start = "Taking each case on its own, say how many golden ears a tiny cat has; and how many ivory toes a feral bear"
    for rest in (
        "has once it enters the desert",
        "will have once it goes out into the desert",
        "has when in the desert",
    ):
        assert why_refused(f"{start} {rest}.", f"{start} {rest}.") is None
    assert why_refused(f"{start} {rest}.", f"{start} has when at the desert.")
