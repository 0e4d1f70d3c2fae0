"""Evaluation tools and rwbench's prompting rows ask the same prompt, to the byte."""

import numpy as np
import pytest
from ruleworld_data.plugins import TaskOptions, prompt_rows
from ruleworld_data.prompts import answer_template
from ruleworld_data.scoring import score_output
from ruleworld_data.spec import VERSIONS
from rwbench.backends import Completion
from rwbench.backends.endpoint import Endpoint
from rwbench.leaderboard.records import answers_in
from rwbench.methods.conversation import read_answer
from rwbench.methods.ircot import IRCoT
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


def test_prompts_are_those_that_published_runs_are_named_after():
    """In rounds, with the conventions of the version of the data that the model is asked about."""
    ids = []
    for version in VERSIONS:
        model = Endpoint.of("said", "http://localhost:1/v1", version)
        ids.append(answer_template(version).id)
        ids += [kind(model=model, retriever=BM25()).prompt for kind in (IRCoT, ReAct)]
    assert ids[:3] == ["answer-2@f1e6d2aefb88", "ircot-2@474632e8a1fe", "react-2@771f1e307b60"]
    assert ids[3:] == ["answer-3@92f70ad7781a", "ircot-3@6e034aea4944", "react-3@6f8557029275"]
