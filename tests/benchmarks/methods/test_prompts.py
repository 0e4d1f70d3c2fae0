"""Evaluation tools and rwbench's prompting rows ask the same prompt, to the byte."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ruleworld_data.plugins import TaskOptions, prompt_rows
from ruleworld_data.prompts import answer_template
from ruleworld_data.text import parse_rule_fol, parse_rule_nl
from ruleworld_data.verify import RuleIndex, execute
from rwbench.methods.ircot import IRCoT
from rwbench.methods.iterative import shipped_template
from rwbench.methods.react import ReAct
from rwbench.retrievers.bm25 import BM25
from rwbench.run.data import DataSource

played = runpy.run_path(str(Path(__file__).parents[1] / "script.py"))


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
}


@pytest.mark.parametrize("representation", SAME)
def test_every_prompt_states_the_conventions(representation):
    words = " ".join(answer_template().render("answer", representation, "Q?", ["R"]).text.split())
    for convention in (SAME[representation], "fires per unit", "scene of its own"):
        assert convention in words
    bare = answer_template().render("answer_without_rules", representation, "Q?").text
    assert "scene of its own" in bare


@pytest.mark.parametrize("method", ["ircot", "react"])
@pytest.mark.parametrize("representation", ["nl", "fol"])
def test_the_rounds_on_data_1_1_state_the_conventions_that_the_answer_s_prompt_states(method, representation):
    section = {"ircot": "reason", "react": "act"}[method]
    text = shipped_template(method).sections[section][representation]
    said = [
        line for line in answer_template().sections["answer"][representation].splitlines() if line[:2] == "- "
    ]
    follow = "- What a rule concludes can make another rule apply. Follow the chain to its end."
    assert [line for line in text.splitlines() if line[:2] == "- "] == [
        line for line in said if line != follow
    ]


def test_the_example_of_react_is_data_1_1_and_its_answer_follows():
    """Read by the parsers of that version, and answered by the executor."""
    texts = shipped_template("react").sections["act"]
    nl = re.findall(r"^(?:Observation \d: )?(If A .*\.)$", texts["nl"], re.MULTILINE)
    fol = re.findall(r"^(?:Observation \d: )?(\S+\(.* => .*)$", texts["fol"], re.MULTILINE)
    read = [parse_rule_nl(text) for text in nl]
    assert read == [parse_rule_fol(text) for text in fol] and len(read) == 4
    rules = RuleIndex.from_table(pa.table({"id": pa.array(range(4), pa.int32()), "fol": fol}))
    derived = execute("Calm_fox(x) & Bakery(x)", "Has(x, Amber_bead, ?)", rules)
    assert (
        re.findall(r"finish\[(\d+)\]", texts["nl"])
        == re.findall(r"finish\[(\d+)\]", texts["fol"])
        == [derived.answer]
    )
    assert set(derived.rule_ids) == {0, 1, 2, 3}


def test_the_rounds_ask_the_prompts_that_runs_are_named_after():
    ids = {
        kind.name: kind(model=played["script"]("said", str), retriever=BM25()).prompt
        for kind in (IRCoT, ReAct)
    }
    assert ids == {"ircot": "ircot-2@474632e8a1fe", "react": "react-2@771f1e307b60"}
