"""DynaRule+'s search in a prompt."""

import numpy as np
from rwbench.backends.local import Local
from rwbench.methods.plus import DynaRulePlus, Planned
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
