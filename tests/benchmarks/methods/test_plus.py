"""DynaRule+'s search in a prompt, and other searches in its place."""

import numpy as np
import pytest
from rwbench.backends.local import Local
from rwbench.methods.plus import DynaRulePlus, Planned, Searched
from rwbench.retrievers.both_ends import BothEnds
from rwbench.run.data import DataSource, select
from rwbench.run.pools import Pool


def test_the_search_of_dynarule_plus_may_fill_a_prompt(monkeypatch):
    """The first search of each question is the same, and what DynaRule+ would read stands in the prompt."""
    model, source = Local.of("tiny"), DataSource("tiny", version="1.1")
    rules, questions = source.rules("test"), select(source.questions("multi_hop_3", "test"), 2)
    pool = Pool(
        np.union1d(rules.ids[:300], questions[0].gold + questions[1].gold), rules, "nl", tuple(questions)
    )
    batch, prompts, generate = [(pool, question) for question in questions], [], Local.generate
    read = [output.retrieved for output in DynaRulePlus.of(model, "nl").answer(batch, 16)]
    monkeypatch.setattr(
        Local, "generate", lambda self, sent, *rest: prompts.extend(sent) or generate(self, sent, *rest)
    )
    method = Planned.of(model, "nl")
    assert method.missing() is None and method.label == "RAG by DynaRule+'s search, tiny"
    outputs = method.answer(batch, 16)
    for output, steps, prompt, question in zip(outputs, read, prompts, questions, strict=False):
        assert output.error is None and output.retrieved[0] == steps[0]
        *lines, blank, text = prompt.text.rstrip("\n").split("\n")
        assert (blank, text, prompt.begun) == ("", question.text, "")
        first = pool.rules.texts(np.array(steps[0][:1], dtype=np.int32), "nl")
        assert lines[0] == first[0] and len(lines) < 16
        assert len(output.retrieved) > 1
    assert any(prompt.begun.count("\n") for prompt in prompts)


def test_another_search_may_stand_in_the_place_of_dynarule_plus():
    """What it finds for the question, and from the second step on for the step before, is read, best first."""
    model, source = Local.of("tiny"), DataSource("tiny", version="1.1")
    rules, questions = source.rules("test"), select(source.questions("multi_hop_3", "test"), 2)
    pools = [
        Pool(np.union1d(rules.ids[at : at + 300], question.gold), rules, "nl", (question,))
        for at, question in enumerate(questions)
    ]
    for changes in ({"rules": "without_gold"}, {"rules": "gold"}, {"correct_layer": 2}):
        with pytest.raises(ValueError, match="another search finds rules of the pool, got"):
            Searched.of(model, "nl", retriever=BothEnds(), **changes)
    method = Searched.of(model, "nl", retriever=BothEnds(), score_weight=1, kept=5)
    assert method.missing() is None
    assert method.label == "DynaRule+, both ends in place of its search, tiny, 5 kept, scores x 1"
    outputs = method.answer(list(zip(pools, questions, strict=True)), 16)
    for output, pool, question in zip(outputs, pools, questions, strict=True):
        score, found = BothEnds().scorer(pool.ids, pool.texts), {}
        lines = [step.text.strip() for step in output.trace]
        for last, step in zip(["", *lines], output.retrieved, strict=False):
            rows = score([question.text, f"{question.text}\n{last}"] if last else [question.text])
            best = (rows / rows.max(1, keepdims=True)).max(0)
            order = sorted(range(len(best)), key=lambda at: (-best[at], pool.ids[at]))
            assert set(step) <= set(pool.ids[best > 0].tolist())
            found[last] = [int(pool.ids[at]) for at in order[:5] if best[at] > 0]
            assert [best[list(pool.ids).index(rule)] for rule in step] == pytest.approx(
                [best[list(pool.ids).index(rule)] for rule in found[last]]
            )
        assert len(found) > 1
        assert output.answers
