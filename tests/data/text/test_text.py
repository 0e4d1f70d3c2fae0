"""Texts that are no rules are refused by name; those of every table are read back in `test_words`."""

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from ruleworld_data.text import parse_rule
from ruleworld_data.verify import parse_rule_table

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))


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


def test_a_table_without_fol_is_refused():
    with pytest.raises(ValueError, match="id and fol"):
        parse_rule_table(pa.table({"id": pa.array([1], pa.int32()), "nl": ["If"]}))
