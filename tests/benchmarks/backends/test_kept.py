"""Conversations of local models: a line goes on from what was read and written before, and is the same line."""

from dataclasses import replace

import pytest
from rwbench.backends import Decoding, local
from rwbench.backends.local import Local, load
from rwbench.backends.rows import encoded

import dynarule

from ..tiny_lm import byte_level
from .conftest import all_so_far

LINE = Decoding(60, ("\n",), requests=True)


@pytest.fixture(scope="module")
def talks(workspace):
    """Questions of several lengths, each with the rules that answer it, in turn."""
    rules = workspace.rules("mini")
    questions = [
        workspace.questions(name, "mini")[0] for name in ("single_rule", "multi_rule_3", "multi_hop_4")
    ]
    return [
        (
            Local.of("tiny").template.render("answer_without_rules", "nl", each.text),
            rules.texts(sorted(each.gold), "nl"),
        )
        for each in questions
    ]


def turns(backend, talks, between=lambda turn, prompts: None, most=4):
    """Ask line by line; below a line that asks comes the next rule. Return the lines of every turn."""
    prompts, lines = [prompt for prompt, _ in talks], []
    for turn in range(most):
        between(turn, prompts)
        done = list(backend.generate(prompts, LINE))
        lines.append([(each.text, each.marked, each.finish, each.completion_tokens) for each in done])
        prompts = [
            replace(
                prompt,
                begun=f"{prompt.begun}{each.marked}\n"
                + (f"{rules[turn % len(rules)]}\n\n" if turn % 2 == 0 else ""),
            )
            for prompt, each, (_, rules) in zip(prompts, done, talks, strict=True)
        ]
    return lines


@pytest.fixture(scope="module")
def wanted(talks):
    """The lines where everything is read again at every turn."""
    return turns(Local.of("tiny"), talks, all_so_far)


def test_lines_are_those_of_reading_everything_again(talks, wanted, monkeypatch, forwards):
    """Though rows leave on the way and their texts differ in length; and but for the first turn, little is read."""
    monkeypatch.setattr(local, "PIECE", 5)
    firsts, read = [], forwards("tiny")
    held = turns(Local.of("tiny"), talks, lambda turn, prompts: firsts.append(len(read)))
    assert held == wanted
    assert any(line.startswith("[Search]") for line, *_ in held[0])
    tokenizer = load("tiny")[1]
    whole = max(len(tokenizer(prompt.text)["input_ids"]) for prompt, _ in talks)
    assert read[0] == (len(talks), whole)
    assert all(read[first][1] < 60 for first in firsts[1:])


@pytest.mark.parametrize("ending", ["\n", "\n\n", " \n"])
def test_a_text_that_goes_on_has_the_tokens_that_it_has_before_a_word(ending):
    """A blank line at its end is two line breaks, as in every text that was read whole; alone it would be one token."""
    text, met = f"a rule ends{ending}", byte_level(["a rule ends.\n\n", "and then  \n\n\n"] * 9)
    for tokenizer in (met, load("tiny")[1]):
        ids = encoded(tokenizer, text, True)
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer(text)["input_ids"])
        for word in ("[Step 1]", "If", "7"):
            assert tokenizer(text + word)["input_ids"][: len(ids)] == ids
    assert met("ends.\n\n")["input_ids"] != encoded(met, "ends.\n\n", True)


def test_a_sliding_window_keeps_nothing(talks, wanted, monkeypatch):
    """Its cache has let go of what is far behind, so all is read anew."""
    growing = dynarule.growing_cache

    def sliding(model):
        cache = growing(model)
        monkeypatch.setattr(type(cache), "is_sliding", property(lambda _: [True]))
        return cache

    monkeypatch.setattr(dynarule, "growing_cache", sliding)
    assert turns(Local.of("tiny"), talks, most=2) == wanted[:2]
    assert not local._kept_states("tiny", "")._latest
