"""The scorer against hand-made cases, a short reference scorer and properties."""

import re
import signal
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruleworld_data.scoring import (
    exact_match,
    normalise,
    parse_boxed,
    score_output,
    split_answers,
    step_recall,
    step_recalls,
    union_recall,
)

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))

# --- the box ---


@pytest.mark.parametrize("case", CASES["box"])
def test_box_cases(case):
    text, *content = case
    assert [parse_boxed(text)] == (content or [None])


def reference_box(text: str) -> str | None:
    """Every start from the last to the first, one character at a time: slow and plain."""
    for found in reversed(list(re.finditer(r"\\boxed\s*\{", text))):
        depth, position = 1, found.end()
        while position < len(text):
            if text[position] == "\\":
                position += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[found.end() : position]
            position += 1
    return None


PIECES = st.lists(
    st.sampled_from(["\\boxed{", "\\boxed", "{", "}", "\\{", "\\}", "\\\\", "\\", " ", "a"]), max_size=24
)


@given(PIECES.map("".join))
def test_box_agrees_with_reference(text: str) -> None:
    assert parse_boxed(text) == reference_box(text)


@pytest.mark.parametrize("shell", ["\\boxed{{{}}}", "\\boxed {}{{2}}"])
def test_long_outputs_take_no_time(shell: str) -> None:
    """Linear code needs a tenth of a second for each, of this process alone."""

    def too_slow(*_: object) -> None:
        raise TimeoutError("quadratic")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    try:
        for unit in r"~ < \% { \ \boxed{ \boxed \boxed{1} 1\, {,} \text{".split():
            signal.setitimer(signal.ITIMER_VIRTUAL, 6)
            assert 0 <= score_output(shell.format(unit * (500_000 // len(unit))), ["1"]).exact_match <= 1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# --- normalisation ---


@pytest.mark.parametrize(("expected", "texts"), CASES["normal"])
def test_normalise_cases(expected, texts):
    assert {normalise(text) for text in texts} == {expected}


@pytest.mark.parametrize(("text", "parts"), CASES["split"])
def test_split_cases(text: str, parts: list[str]) -> None:
    assert split_answers(text) == parts


@given(st.text() | PIECES.map("".join))
@example("\\te$xt{a}")
@example("\\te\\textxt")
@example("ΑΣ'")
@example("İ")
@example("\\$>")
@example("<<a>.>")
@example("~$1")
def test_normalise_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert split_answers(text) == [normalise(part) for part in split_answers(text)]


# --- scores ---


@pytest.mark.parametrize(("output", "score"), CASES["strict"])
def test_what_is_strict(output: str, score: float) -> None:
    """As the metric's card says it."""
    assert score_output(output, ["6", "bridge"]).exact_match == score


WORDS = st.sampled_from("0;7;12;120;stone bridge;desert;deeply hungry;celestial garden".split(";"))
LISTS = st.lists(WORDS, min_size=1, max_size=5)
DECORATIONS = ["{}", " {} ", "\\text{{{}}}", "${}$", "**{}**", "'{}'", "\\mathrm{{{}}}", "{}."]


def reference_score(output: str, gold: list[str]) -> Fraction:
    """The paper's sentence for outputs of plain words: last box, split, compare by position."""
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", output)
    if not boxes:
        return Fraction(0)
    ours = [" ".join(part.lower().split()) for part in boxes[-1].split(",")]
    theirs = [" ".join(part.lower().split()) for part in gold]
    if len(ours) != len(theirs):
        return Fraction(0)
    return Fraction(sum(a == b for a, b in zip(ours, theirs, strict=True)), len(theirs))


@given(LISTS, LISTS, st.booleans())
def test_score_agrees_with_reference(answers: list[str], gold: list[str], boxed: bool) -> None:
    listed = " , ".join(answers).upper()
    output = f"First \\boxed{{1, 2}}. So \\boxed{{{listed}}} it is." if boxed else listed
    score = score_output(output, gold)
    assert score.exact_match == pytest.approx(float(reference_score(output, gold)))
    assert score.strict_match == float(reference_score(output, gold) == 1)
    assert score.missing_box is not boxed
    assert score.length_mismatch is (boxed and len(answers) != len(gold))
    assert score.parsed == (tuple(answers) if boxed else ())
    assert score_output(output, ", ".join(gold)) == score


@given(LISTS, st.data())
def test_decorated_gold_scores_one(gold: list[str], data: st.DataObject) -> None:
    parts = [data.draw(st.sampled_from(DECORATIONS)).format(answer) for answer in gold]
    score = score_output(f"So \\boxed{{{', '.join(parts)}}}.", gold)
    assert (score.exact_match, score.strict_match) == (1.0, 1.0)


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | PIECES.map("".join))
@example("\\boxed{\ud800}")
@example("\\boxed{\x00,\x00}")
def test_any_text_has_a_score(text: str) -> None:
    score = score_output(text, ["12", "desert"])
    assert 0.0 <= score.strict_match <= score.exact_match <= 1.0
    assert not (score.missing_box and score.length_mismatch)


# A set or a mapping has answers in no order, and would be scored by chance.
@pytest.mark.parametrize(
    "odd", [None, 1, {"1": 0}, {"1"}, iter("1"), [1], b"1", [["1"]]], ids=lambda odd: type(odd).__name__
)
def test_answers_are_lists_of_texts(odd: object) -> None:
    # A gold answer that is none, or two, is right of no output.
    for prediction, gold in ((odd, ["1"]), (["1"], odd), (["1"], ["1, 2"]), (["1"], [""])):
        with pytest.raises(ValueError, match=r"must be (?:a list of texts|one answer), got"):
            exact_match(prediction, gold)  # type: ignore[arg-type]


# --- retrieval ---


def test_step_recall_by_hand() -> None:
    gold = [[1], [2, 3], [4, 5]]
    retrieved = [[9, 1, 8], [3, 9, 2]]  # the third retrieval is missing
    assert step_recalls(retrieved, gold, k=1) == [0.0, 0.5, 0.0]
    assert step_recalls(retrieved, gold, k=2) == [1.0, 0.5, 0.0]
    assert step_recalls(retrieved, gold, k=10) == [1.0, 1.0, 0.0]
    assert step_recalls([[9, 1], [3, 2]], gold, k="gold") == [0.0, 1.0, 0.0]  # one rule, two rules, two rules
    assert step_recall(retrieved, gold, k=10) == pytest.approx(2 / 3)
    assert step_recall([*retrieved, [4, 5], [6]], gold, k=10) == 1.0  # the fourth retrieval is dropped
    assert step_recall([[2, 3], [1]], [[1], [2, 3]], k=10) == 0.0  # right rules at the wrong step
    assert step_recall([[1, 1, 2]], [[1, 2]], k="gold") == 0.5  # a repeat uses up a place


def test_union_recall_by_hand() -> None:
    gold = [[1], [2, 3]]
    assert union_recall([[2, 3], [1]], gold, k=10) == 1.0
    assert union_recall([[2, 3], [1]], gold, k=1) == pytest.approx(2 / 3)
    assert union_recall([[2, 3], [1]], gold, k="gold") == pytest.approx(2 / 3)
    assert union_recall([[9], [9], [1, 2, 3]], gold, k=10) == 0.0  # a third retrieval for two steps
    assert union_recall([[3, 9, 1, 2]], [[1, 2, 3]], k="gold") == pytest.approx(2 / 3)
    assert union_recall([[3, 9, 1, 2]], [[1, 2, 3]], k=4) == 1.0
    assert union_recall([], [[1, 2]], k=4) == union_recall([[]], [[1, 2]], k=4) == 0.0
    assert union_recall([["b", "a"]], [["ab"]], k=2) == 0.0  # a string is an id, not a list of ids


IDS = st.lists(st.integers(0, 9), max_size=8)
STEPS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1, max_size=4)


@given(st.lists(IDS, max_size=5), STEPS, st.integers(1, 9))
def test_recall_properties(retrieved: list[list[int]], gold: list[list[int]], k: int) -> None:
    hits = [
        [rule for rule in set(want) if rule in (retrieved[t][:k] if t < len(retrieved) else [])]
        for t, want in enumerate(gold)
    ]
    assert step_recalls(retrieved, gold, k) == [
        len(hit) / len(want) for hit, want in zip(hits, gold, strict=True)
    ]
    assert step_recall(retrieved, gold, k) <= step_recall(retrieved, gold, k + 1)
    found = {rule for hit in hits for rule in hit}
    assert union_recall(retrieved, gold, k) >= len(found) / len({rule for want in gold for rule in want})
    if len(retrieved) == len(gold):
        assert union_recall(retrieved[::-1], gold[::-1], k) == union_recall(retrieved, gold, k)
