"""The front page is short, and its question is one of the data's."""

from pathlib import Path

from ruleworld_data.generate import question_table

FRONT = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def test_the_front_page_is_two_screens_of_short_lines():
    lines = FRONT.splitlines()
    assert len(lines) <= 110
    assert [line for line in lines if len(line) > 120 and not line.startswith(("|", "rwbench", "  -q"))] == []


def test_its_first_question_is_the_first_of_the_test_split():
    (row,) = question_table("single_rule", "test").slice(0, 1).to_pylist()
    shown = " ".join(FRONT.replace("\n> ", " ").split())
    assert row["question"] in shown and row["answers"] == ["18"]
