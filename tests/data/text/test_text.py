"""Texts that are no rules are refused by name; those of every table are read back in `test_words`."""

import pyarrow as pa
import pytest
from ruleworld_data.text import parse_rule
from ruleworld_data.verify import parse_rule_table


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tiny_cat(A) => Has(Strong_horn, 14) => Enter(A, Bridge)",
        "Tiny_cat(A) => Has(B, Strong_horn, 14)",
        "Tiny_cat(A) => Enter(A, Bridge)",
        "Lose_Strong_fin(A, 2) => Drop_Mineral_scale(A, 2)",
        "Attack(B, A) => Enter(B, Bridge)",
        "Attack(A, B) => Bridge(B)",
        "Deeply_hungry(A) & Bridge(A) => Lose_Strong_fin(A, 2)",
        "Deeply_hungry(A) & Bridge(A) & Tiny_cat(A) => Instead_Lose_Strong_fin(A, 2)",
        "Deeply_hungry(A) & Tiny_cat(A) => Instead_Has(Strong_fin, 2)",
        "More_Strong_horn(B, 12) => Deeply_hungry(B)",
        "More_Strong_horn(A, 12) => Lose_Strong_fin(A, 2)",
    ],
)
def test_other_fol_is_refused_by_name(text):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_rule("fol", text)
    premise, conclusion = text.split(" => ")[0], text.split(" => ")[-1]
    assert any(part in str(caught.value) for part in (repr(text), repr(premise), conclusion))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "If A is a tiny cat, it has 14 strong horns",
        "If A is an tiny cat, it has 14 strong horns.",
        "If A is a tiny cat, it has 14 strong horn.",
        "If A is a tiny cat, B has 14 strong horns.",
        "If A loses 2 strong fins, A will drop 2 mineral scales.",
        "If A is in the bridge, A will be slightly disappointed.",
        "If A attacks B, A will step onto the bridge.",
        "If A is on the bridge and deeply hungry, A will lose 2 strong fins.",
        "If A is deeply hungry and is on the bridge, A will lose 2 strong fins.",
        "If A has more than 12 strong horns, it has 4 strong fins.",
    ],
)
def test_other_english_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_rule("nl", text)


def test_a_table_without_fol_is_refused():
    with pytest.raises(ValueError, match="id and fol"):
        parse_rule_table(pa.table({"id": pa.array([1], pa.int32()), "nl": ["If"]}))
