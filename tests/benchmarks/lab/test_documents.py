"""Documents that bases are trained on: what they hold, and what the loss is on."""

import hashlib
import json

from documents import FEWEST, Mixture, batches, draw_block, request_text
from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SUBTASKS
from rwbench.models import model_template

EVERYTHING = Mixture(recital=0.3, questions=0.5, requests=0.2, recited=11, beside=12)


def texts_of(writer, block):
    return [writer.tokenizer.decode(document.ids) for document in block]


def test_a_block_is_what_it_was_when_the_bundled_models_were_trained(writer):
    """Written down as the scripts of commit b6bc1cee drew it."""
    mixture = Mixture(recital=0.3, questions=0.4, requests=0.3, alike=0.5, asked=1, recited=11, beside=12)
    block = draw_block(writer, 5, 3, mixture, 9000)
    assert hashlib.sha256(json.dumps(block).encode()).hexdigest()[:16] == "71fee9aa69275a1f"
    assert block != draw_block(writer, 5, 4, mixture, 9000) != draw_block(writer, 6, 4, mixture, 9000)


def test_a_question_is_the_prompt_as_it_is_asked_and_its_answer(writer):
    (world,) = fresh_worlds(9, 1, dict.fromkeys(SUBTASKS, 1), n_rules=300)
    template, rule = model_template("tiny"), "If A is a tiny cat, it has 12 fins."
    for row in world.questions.to_pylist():
        document = writer.questions([rule], [row], "nl")
        ((start, stop, kind),) = document.spans
        prompt, answer = (
            writer.tokenizer.decode(ids) for ids in (document.ids[:start], document.ids[start:])
        )
        assert prompt == template.render("answer", "nl", row["question"], [rule]).text
        assert answer == training_text(row, "nl", None, mark="<step>") + "<end>" and kind == row["subtask"]
        assert document.weights == [0.15] * start + [1.0] * (stop - start)


def test_every_recited_premise_has_one_conclusion_and_lists_are_as_long_as_they_may_be(writer):
    """A premise that two rules of the list share could not be answered but by luck."""
    block = draw_block(writer, 1, 0, Mixture(recital=1.0, fol=1.0, recited=16), 30_000)
    lists = [text.split("\n\n")[0].split("\n") for text in texts_of(writer, block)]
    for rules, document in zip(lists, block, strict=True):
        premises = [rule.split(" => ")[0] for rule in rules]
        assert len(set(premises)) == len(premises) == len(document.spans)
    lengths = {len(rules) for rules in lists}
    assert max(lengths) == 16 and min(lengths) >= FEWEST


def test_a_request_says_no_more_than_is_known_and_brings_its_rule(writer):
    """Read back: what a line asks for is a premise and a thing to have, never what its rule concludes."""
    requests = 0
    for text in texts_of(writer, draw_block(writer, 7, 1, Mixture(requests=1.0), 20_000)):
        lines = text.split("\n")
        assert lines[-1].startswith("[Answer]")
        for number, line in enumerate(lines):
            if line.startswith("[Search] "):
                words = line.removeprefix("[Search] ").split(", ")
                known = ", ".join(words[:2]) if words[0].count("(") > words[0].count(")") else words[0]
                brought = lines[number + 1 : lines.index("", number)]
                assert any(rule.removeprefix("If ").startswith(known) for rule in brought)
                requests += 1
    assert requests > 100
    giver = {"type": "entity2attr", "premise_fol": "Tiny_cat(A)", "attribute": "solar thumb"}
    assert request_text(giver, "fol") == "Tiny_cat(A), Solar_thumb"


def test_no_rule_or_question_is_the_benchmarks_and_no_word_falls_to_pieces(writer):
    """Worlds are independent: shared rules are as rare as chance makes them, shared questions do not occur."""
    tables = [question_table(subtask, "test", scale="tiny") for subtask in SUBTASKS]
    questions = {text for table in tables for text in table.column("question").to_pylist()}
    block = draw_block(writer, 0, 0, Mixture(recital=0.5, questions=0.5, fol=0.0, beside=4), 24_000)
    lines = {line for text in texts_of(writer, block) for line in text.split("\n")}
    rules = {line for line in lines if line.startswith("If A ") and line.endswith(".")}
    assert len(rules) > 300 and len(
        rules & {*rule_table(scale="paper").column("nl").to_pylist()}
    ) < 0.02 * len(rules)
    assert not {line.split("<end>")[-1] for line in lines} & questions
    pieces = {token for document in block for token in writer.tokenizer.convert_ids_to_tokens(document.ids)}
    assert not [token for token in pieces if token.startswith("##") or token == "<unknown>"]


def test_every_short_document_comes_once_and_every_lookup_is_predicted(writer):
    block = draw_block(writer, 5, 3, EVERYTHING, 9000)
    short = [document for document in block if len(document.ids) <= 400]
    made = list(batches(block, 1024, 400, "key"))
    assert sum(len(batch.ids_BT) for batch in made) == len(short) > 10
    assert sum(len(batch.spans) for batch in made) == sum(len(document.spans) for document in short)
    assert all(batch.ids_BT.numel() <= 1024 or len(batch.ids_BT) == 1 for batch in made)
    assert all(
        batch.predicted_BT[row, start:stop].all() for batch in made for row, start, stop, _ in batch.spans
    )
    weights = [weight for document in short for weight in document.weights[1:]]
    predicted, sure = sum(int(batch.predicted_BT.sum()) for batch in made), weights.count(1.0)
    assert sure + 0.1 * weights.count(0.15) < predicted < sure + 0.2 * weights.count(0.15)
