"""Premises and conclusions of sentences as people write rules."""

import re
from pathlib import Path

import pytest
from dynarule.bank.clauses import split_rule
from hypothesis import given
from hypothesis import strategies as st

LINES = [
    line
    for line in (Path(__file__).parent / "shapes.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]


@pytest.mark.parametrize("line", LINES)
def test_a_sentence_is_split_where_its_main_clause_begins(line):
    premise, conclusion = ", ".join(re.findall(r"\[(.+?)\]", line)), "".join(re.findall(r"\{(.+?)\}", line))
    rule = re.sub(r"[\[\]{}]", "", line)
    expected = (premise, conclusion, True) if premise and conclusion else (rule, rule, False)
    assert split_rule(rule) == expected


@given(
    st.text(max_size=200),
    st.sampled_from(["If ", "When ", "", "For ", ": "]),
    st.sampled_from([", ", " if ", " -> "]),
)
def test_any_text_is_split_into_its_own_words(text, first, between):
    rule = f"{first}{text}{between}{text}"
    premise, conclusion, sure = split_rule(rule)
    whole = " ".join(rule.split())
    ends = [premise.find(", ", i) for i in range(len(premise))]  # an opening and the condition at the end
    assert premise in whole or any(premise[:end] in whole and premise[end + 2 :] in whole for end in ends)
    # the sentences behind a condition at the end of the first go to the conclusion
    assert any(conclusion[:i] in whole and conclusion[i:] in whole for i in range(len(conclusion) + 1))
    assert sure or premise == conclusion == whole
