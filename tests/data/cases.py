"""Cases that stand as text beside a test: one a line, its cells between bars, in blocks between blank lines."""

from dataclasses import replace
from pathlib import Path

from ruleworld_data.generate import table
from ruleworld_data.spec import QUESTION_SPLITS, SCALES, SUBTASKS, WorldSpec


def blocks(test, name):
    """Return the blocks of a file in a test's folder: rows of cells, "-" as None, without the lines of "#"."""
    text = Path(test).with_name(name).read_text(encoding="utf-8")
    rows = [
        [line.split(" | ") for line in block.splitlines() if line[0] != "#"]
        for block in text.strip().split("\n\n")
    ]
    return [[tuple(None if cell == "-" else cell for cell in row) for row in block] for block in rows]


def asking_few(scale, each):
    """Return a scale that asks so many questions where it may ask fewer than fifty."""
    evaluation = dict.fromkeys(QUESTION_SPLITS, each) | {"test": 50, "mini": 50}
    return replace(SCALES[scale], train=dict.fromkeys(SUBTASKS, 20), evaluation=evaluation, unit_pool=20)


def question_table(subtask, split, scale="paper", seed=0, start=0, stop=None, **made):
    """Return questions of a split."""
    return table(subtask, WorldSpec(scale, split, seed, **made), start, stop)


def rule_table(split="train", *settings, **more):
    """Return the rules of a world."""
    return question_table("rules", split, *settings, **more)


def contents(folder):
    """Return the files of a folder by their paths in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
