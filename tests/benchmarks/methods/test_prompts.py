"""Evaluation tools and rwbench's prompting rows ask the same prompt, to the byte."""

from __future__ import annotations

import numpy as np
import pytest
from ruleworld_data.plugins import TaskOptions, prompt_rows
from ruleworld_data.prompts import answer_template
from rwbench.run.data import DataSource


def test_the_template_is_the_one_of_the_published_runs():
    assert answer_template().id == "answer-2@f1e6d2aefb88"


@pytest.mark.parametrize("rules", ["pool", "gold", "none"])
@pytest.mark.parametrize("representation", ["nl", "fol"])
def test_the_prompts_are_the_same(representation, rules):
    setting = TaskOptions(
        "mini", "tiny", representation=representation, rules=rules, pool_size=9, data_version="1.1"
    )
    source = DataSource("tiny", version="1.1")
    table, section = source.rules("mini"), "answer" if rules != "none" else "answer_without_rules"
    questions = source.questions("multi_rule_3", "mini")
    for row, question in zip(prompt_rows("multi_rule_3", setting), questions, strict=True):
        ids = np.array(row["rule_ids"], dtype=np.int32)
        if rules == "gold":
            assert ids.tolist() == sorted(question.gold)
        texts = table.texts(ids, representation) if len(ids) else []
        prompt = answer_template().render(section, representation, question.text, texts)
        assert row["prompt"] == prompt.text


SAME = {
    "nl": '"loses" and "drops" mean the same',
    "fol": "Lose_X and Drop_X mean",
    "code": "lose and drop mean the same",
}


@pytest.mark.parametrize("representation", SAME)
def test_every_prompt_states_the_conventions(representation):
    words = " ".join(answer_template().render("answer", representation, "Q?", ["R"]).text.split())
    for convention in (SAME[representation], "fires per unit", "scene of its own"):
        assert convention in words
    bare = answer_template().render("answer_without_rules", representation, "Q?").text
    assert "scene of its own" in bare
