"""Documents that a model learns from: what they hold, and what the loss is on."""

from drills import Ingredient, draw_trees
from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SUBTASKS
from rwbench.models import model_template


def test_a_question_is_the_prompt_as_it_is_asked_and_its_answer(writer):
    (world,) = fresh_worlds(9, 1, dict.fromkeys(SUBTASKS, 1), n_rules=300)
    template, rule = model_template("tiny"), "If A is a tiny cat, it has 12 fins."
    rules, decode = writer.rules([rule]), writer.tokenizer.decode
    for row in world.questions.to_pylist():
        document = writer.answer(row, "nl")
        start = document.wanted.index(True)
        prompt, answer = (decode(ids) for ids in (rules.ids + document.ids[:start], document.ids[start:]))
        assert prompt == template.render("answer", "nl", row["question"], [rule]).text
        assert answer == training_text(row, "nl", None, mark="<step>") + "<end>"
        assert not any(rules.wanted) and all(document.wanted[start:])


def test_a_request_says_no_more_than_is_known_and_brings_its_rule_and_no_question_is_the_benchmarks(writer):
    """Read back: what a line asks for is a premise and a thing to have, never what its rule concludes.

    Worlds are independent: shared rules are as rare as chance makes them, shared questions do not occur.
    """
    tables = [question_table(subtask, "test", scale="tiny") for subtask in SUBTASKS]
    questions = {text for table in tables for text in table.column("question").to_pylist()}
    trees = draw_trees(writer, "7", 1, {"": Ingredient(1.0, dials="", version="1.1", requests=True)}, 20_000)
    texts = [writer.tokenizer.decode(branch.ids) for tree in trees for branch in tree.branches]
    requests, rules = 0, set()
    for text in texts:
        lines = text.split("\n")
        assert lines[0] not in questions and lines[-1].startswith("[Answer]") and "<unknown>" not in text
        for number, line in enumerate(lines):
            if line.startswith("[Search] "):
                words = line.removeprefix("[Search] ").split(", ")
                known = ", ".join(words[:2]) if words[0].count("(") > words[0].count(")") else words[0]
                brought = lines[number + 1 : lines.index("", number)]
                assert any(rule.removeprefix("If ").startswith(known) for rule in brought)
                requests += 1
                rules |= {*brought}
    assert requests > 100 and len(rules) > 100
    assert len(rules & {*rule_table(scale="paper").column("nl").to_pylist()}) < 0.02 * len(rules)
