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
from ruleworld_data.spec import VERSIONS
from ruleworld_data.verify import RuleIndex, execute
from ruleworld_data.world import load_vocabulary
from rwbench.backends.endpoint import Endpoint
from rwbench.methods.ircot import IRCoT
from rwbench.methods.iterative import shipped_template
from rwbench.methods.react import ReAct
from rwbench.retrievers.bm25 import BM25
from rwbench.run.data import DataSource

played = runpy.run_path(str(Path(__file__).parents[1] / "script.py"))


@pytest.mark.parametrize(("rules", "version"), [("pool", "1.1"), ("gold", "1.2"), ("none", "1.2")])
@pytest.mark.parametrize("representation", ["nl", "fol"])
def test_the_prompts_are_the_same(representation, rules, version):
    setting = TaskOptions(
        "mini", "tiny", representation=representation, rules=rules, pool_size=9, data_version=version
    )
    source = DataSource("tiny", version=version)
    table, section = source.rules("mini"), "answer" if rules != "none" else "answer_without_rules"
    questions = source.questions("multi_rule_3", "mini")
    for row, question in zip(prompt_rows("multi_rule_3", setting), questions, strict=True):
        ids = np.array(row["rule_ids"], dtype=np.int32)
        if rules == "gold":
            assert ids.tolist() == sorted(question.gold)
        texts = table.texts(ids, representation) if len(ids) else []
        prompt = answer_template(version).render(section, representation, question.text, texts)
        assert row["prompt"] == prompt.text


@pytest.mark.parametrize(
    ("representation", "same"),
    [("nl", '"loses" and "drops" mean the same'), ("fol", "Lose_X and Drop_X mean")],
)
def test_every_prompt_states_the_conventions(representation, same):
    words = " ".join(answer_template().render("answer", representation, "Q?", ["R"]).text.split())
    assert all(convention in words for convention in (same, "fires per unit", "scene of its own"))
    assert "scene of its own" in answer_template().render("answer_without_rules", representation, "Q?").text
    for version in VERSIONS:
        model = Endpoint.of("said", "http://localhost:1/v1", version)
        lists = [
            [line for line in template.sections[section][representation].splitlines() if line[:2] == "- "]
            for template, section in (
                (model.template, "answer"),
                *((kind(model=model, retriever=BM25()).template, kind.section) for kind in (IRCoT, ReAct)),
            )
        ]
        # in rounds, the chain is followed by searching
        lists[0].remove("- What a rule concludes can make another rule apply. Follow the chain to its end.")
        assert lists[0] == lists[1] == lists[2]


def test_the_prompt_of_data_1_2_names_every_way_to_enter_and_all_conventions():
    nl, fol = (answer_template("1.2").render("answer", form, "Q?").text for form in ("nl", "fol"))
    ways = {word for place in load_vocabulary().environments for word in place.goal.split()} - {"out"}
    third = {base: form.third for base, form in load_vocabulary().goal_verbs.items()}
    assert not [way for way in ways if f" {third.get(way, way)} " not in nl.replace(",", " ")]
    for text in (nl, fol):
        for convention in (
            "fires once",
            "once for each",
            "before anything happens",
            "scene of its own",
            "unknown",
        ):
            assert convention in text


def test_the_example_of_react_is_data_1_1_and_its_answer_follows():
    """Read by the parsers of that version, and answered by the executor."""
    texts = shipped_template("react").sections["act"]
    nl = re.findall(r"^(?:Observation \d: )?(If A .*\.)$", texts["nl"], re.MULTILINE)
    fol = re.findall(r"^(?:Observation \d: )?(\S+\(.* => .*)$", texts["fol"], re.MULTILINE)
    assert len(nl) == len(fol) == 4
    for text, logic in zip(
        nl, fol, strict=True
    ):  # its fox is no kind of RuleWorld's, which English parsers know
        assert [
            word for word in re.findall("[a-z]{2,}|[0-9]+", logic.lower()) if word not in text.lower()
        ] == []
    rules = RuleIndex.from_table(pa.table({"id": pa.array(range(4), pa.int32()), "fol": fol}))
    derived = execute("Calm_fox(x) & Bakery(x)", "Has(x, Amber_bead, ?)", rules)
    for text in texts.values():
        assert re.findall(r"finish\[(\d+)\]", text) == [derived.answer]
    assert set(derived.rule_ids) == {0, 1, 2, 3}


def test_prompts_are_those_that_published_runs_are_named_after():
    kinds = (IRCoT, ReAct)
    rounds = [kind(model=played["script"]("said", str), retriever=BM25()).prompt for kind in kinds]
    assert rounds == ["ircot-2@474632e8a1fe", "react-2@771f1e307b60"]
    assert answer_template().id == "answer-2@f1e6d2aefb88"
