"""Evaluation tools and rwbench's prompting rows ask the same prompt, to the byte."""

import re

import numpy as np
import pyarrow as pa
import pytest
from ruleworld_data.plugins import TaskOptions, prompt_rows
from ruleworld_data.prompts import answer_template
from ruleworld_data.scoring import score_output
from ruleworld_data.spec import VERSIONS
from ruleworld_data.verify import RuleIndex, execute
from rwbench.backends import Completion
from rwbench.backends.endpoint import Endpoint
from rwbench.leaderboard.records import answers_in
from rwbench.methods.conversation import read_answer
from rwbench.methods.ircot import IRCoT
from rwbench.methods.iterative import shipped_template
from rwbench.methods.react import ReAct
from rwbench.retrievers.bm25 import BM25
from rwbench.run.data import DataSource


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


def test_a_run_and_a_submission_read_the_answers_that_the_metric_reads():
    question = DataSource("tiny").questions("multi_hop_2", "mini")[0]
    for output in ("Unknown.", r"\boxed{unknown}", "It is unknown.", ""):
        run = read_answer(answer_template("1.2"), question, Completion(output))
        assert run.answers == answers_in(output) == [*score_output(output, ["unknown"]).parsed]


def test_the_example_of_react_is_data_1_1_and_its_answer_follows():
    """Read by the parsers of that version, and answered by the executor."""
    texts = shipped_template("react").sections["act"]
    nl = re.findall(r"^(?:Observation \d: )?(If A .*\.)$", texts["nl"], re.MULTILINE)
    fol = re.findall(r"^(?:Observation \d: )?(\S+\(.* => .*)$", texts["fol"], re.MULTILINE)
    assert len(nl) == len(fol) == 4
    # its fox is no kind of RuleWorld's, which English parsers know
    for text, logic in zip(nl, fol, strict=True):
        assert [
            word for word in re.findall("[a-z]{2,}|[0-9]+", logic.lower()) if word not in text.lower()
        ] == []
    rules = RuleIndex.from_table(pa.table({"id": pa.array(range(4), pa.int32()), "fol": fol}))
    derived = execute("Calm_fox(x) & Bakery(x)", "Has(x, Amber_bead, ?)", rules)
    for text in texts.values():
        assert re.findall(r"finish\[(\d+)\]", text) == [derived.answer]
    assert set(derived.rule_ids) == {0, 1, 2, 3}


def test_prompts_are_those_that_published_runs_are_named_after():
    """In rounds, with the conventions of the version of the data that the model is asked about."""
    ids = []
    for version in VERSIONS:
        model = Endpoint.of("said", "http://localhost:1/v1", version)
        ids.append(answer_template(version).id)
        ids += [kind(model=model, retriever=BM25()).prompt for kind in (IRCoT, ReAct)]
    assert ids[:3] == ["answer-2@f1e6d2aefb88", "ircot-2@474632e8a1fe", "react-2@771f1e307b60"]
    assert ids[3:] == ["answer-3@288fbb0051d3", "ircot-3@c27338212d39", "react-3@e9533e1786d9"]


def test_prompts_of_data_1_2_say_its_conventions_and_those_of_1_1_what_the_data_card_says_of_them():
    for version in VERSIONS:
        templates = [
            answer_template(version),
            *(shipped_template(name, version) for name in ("ircot", "react")),
        ]
        for sections in [template.sections for template in templates]:
            texts = sections.get("answer") or sections.get("reason") or sections["act"]
            assert all(("An event fires once" in texts[form]) == (version == "1.2") for form in ("nl", "fol"))
            assert ("enters, boards or arrives at a place" in texts["nl"]) == (version == "1.2")
            assert all("Where a question has several parts" in texts[form] for form in ("nl", "fol"))
