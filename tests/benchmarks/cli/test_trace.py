"""`rwbench trace`: one question as it went; `rwbench book`: the model in the box with a rule book to ask."""

import json
import re

import pytest
from ruleworld_data.questions import training_text
from rwbench.backends.local import load_tokenizer
from rwbench.methods import Method, Output, component, trace_step
from rwbench.methods.retrieve import Retrieve
from rwbench.models import adapter_folder, base_folder, fingerprint
from rwbench.recipes import Options
from rwbench.retrievers.bm25 import BM25
from rwbench.run.runner import run_spec

from ..command import dynarule, rwbench


@component
class Walker(Method):
    """Finds the gold rules of every step at the second place, but those of the last step not at all."""

    name = "walker-of-tests"
    stepwise = True

    def answer(self, batch, top_k):
        for pool, question in batch:
            other = next(int(rule) for rule in pool.ids if rule not in question.gold)
            found = [[other, *gold] for gold in question.gold_steps[:-1]] + [[other]]
            text = training_text(question.row, pool.representation).replace("<search>", "")
            parts = re.split(r"(?=\[Step)", text)[1:]
            steps = [trace_step(retrieved=ids, text=part) for ids, part in zip(found, parts, strict=True)]
            yield Output(question.id, found, answers=["999"], text="".join(parts), trace=steps)


@pytest.fixture(scope="module")
def runs(workspace, tmp_path_factory):
    options = Options(workspace, limit=2)
    out = tmp_path_factory.mktemp("runs")
    for method in (Walker(), Retrieve(BM25())):
        run_spec(options.spec(method, "nl", 100, "question"), workspace, out)
    yield out
    Method.registry.remove("walker-of-tests")


def test_each_step_shows_what_was_found_and_what_was_not_and_the_end_the_answer(runs, workspace):
    question = workspace.questions("multi_hop_3", "mini")[10]
    words = ("--method", "walker-of-tests", "--subtask", "multi_hop_3", "--question", question.id, "--top", 1)
    lines = rwbench("trace", runs, *words).stdout.splitlines()
    assert lines[0].endswith("100 rules, NL, split mini")
    assert lines[1] == question.id and question.text in lines
    marks = [line.split()[:2] for line in lines if line.startswith("       ")]
    gold = [workspace.rules("mini").texts(sorted(step), "nl") for step in question.gold_steps]
    found = [text for step in gold[:-1] for text in step]
    assert [line.split(".", 1)[1].removeprefix(" gold  ") for line in lines if ". gold  " in line] == found
    assert [mark for mark, _ in marks if mark == "1."] == ["1."] * 3
    assert f"       not found: {'; '.join(gold[-1])}" in lines
    assert [line[:7] for line in lines if line.startswith("[Step")] == ["[Step 1", "[Step 2", "[Step 3"]
    assert lines[-1] == f"answer: 999 (wrong, gold {', '.join(question.answers)})"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "ragg"), "no run of 'ragg'"),
        (("--method", "retrieve", "--size", 7), "there are: retrieve nl 100, walker-of-tests nl 100"),
        (("--method", "retrieve", "--question", "x"), "has no question x"),
        (("--method", "retrieve", "--subtask", "multi_hop_9"), "has no question of multi_hop_9"),
    ],
)
def test_mistakes_say_what_there_is(runs, words, message):
    done = rwbench("trace", runs, *words)
    assert done.exit_code == 2 and message in done.stderr


QUESTION = "After a feral cow haunted a rustic raccoon, how many rubbery hips does the rustic raccoon have?"


def test_the_book_is_the_shipped_model_and_rules_of_its_language(tmp_path):
    done = rwbench("book", tmp_path / "book")
    assert done.exit_code == 0 and f"dynarule generate --model {tmp_path}/book/base" in done.stderr
    assert fingerprint(tmp_path / "book/base") == fingerprint(base_folder("tiny"))
    shipped, own = adapter_folder("tiny", "dynarule-plus", "nl"), tmp_path / "book/adapter"
    for path in shipped.iterdir():
        if path.name != "adapter_config.json":
            assert (own / path.name).read_bytes() == path.read_bytes()
    before, after = (json.loads((at / "adapter_config.json").read_text()) for at in (shipped, own))
    assert before | {"base_model_name_or_path": str(tmp_path / "book/base")} == after
    tokenizer = load_tokenizer(tmp_path / "book/base")
    rules = (tmp_path / "book/rules.txt").read_text().splitlines()
    assert len(rules) == len({*rules}) == 18
    for text in [*rules, QUESTION]:
        assert not re.search("##|<unknown>", " ".join(tokenizer.tokenize(text)))  # whole words of the base


def test_answers_are_from_the_rules_as_they_are(tmp_path):
    """Three rules are found one after the other; with another third rule the answer is another."""

    def call(*words):
        return dynarule(*words, code=0).stdout

    book = tmp_path / "book"
    rwbench("book", book, code=0)
    bank, adapter = book / "bank", ("--model", book / "base", "--adapter", book / "adapter")
    ask = ("generate", *adapter, "--rules", bank, "-q", QUESTION, "--trace")
    call("bank", "build", book / "rules.txt", "--out", bank, *adapter)
    told = call(*ask)
    found = [re.findall(r"\[(\d+)\]", part) for part in told.split("  step ")[1:]]
    assert (found[0][0], found[1][0]) == ("1", "5")
    assert set(found[2][:2]) == {"8", "14"}  # what the state gives, and how many there were
    (tmp_path / "more.txt").write_text("If A is suddenly famous, A will lose 2 rubbery hips.\n")
    call("bank", "remove", bank, "8")
    call("bank", "add", bank, tmp_path / "more.txt", "--prefix", "new-", *adapter)
    assert r"[Answer] \boxed{13}" in told and r"[Answer] \boxed{8}" in call(*ask)
