"""Evaluation tools and rwbench's prompting rows ask the same prompt, to the byte."""

from __future__ import annotations

import numpy as np
import pytest
from ruleworld_data.plugins import TaskOptions, prompt_rows
from ruleworld_data.prompts import answer_template
from rwbench.run.data import DataSource


def test_the_template_is_the_one_of_the_published_runs():
    assert answer_template().id == "answer-1@a19c08f48a24"


@pytest.mark.parametrize("rules", ["pool", "gold", "none"])
@pytest.mark.parametrize("representation", ["nl", "fol"])
def test_the_prompts_are_the_same(representation, rules):
    setting = TaskOptions("mini", "tiny", representation=representation, rules=rules, pool_size=9)
    source = DataSource("tiny")
    table, section = source.rules("mini"), "answer" if rules != "none" else "answer_without_rules"
    questions = source.questions("multi_rule_3", "mini")
    for row, question in zip(prompt_rows("multi_rule_3", setting), questions, strict=True):
        ids = np.array(row["rule_ids"], dtype=np.int32)
        if rules == "gold":
            assert ids.tolist() == sorted(question.gold)
        texts = table.texts(ids, representation) if len(ids) else []
        prompt = answer_template().render(section, representation, question.text, texts)
        assert row["prompt"] == prompt.text
