"""The front page: its short table and what it says of it, from the committed runs."""

import re
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FRONT = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
FOLDERS = ("held_out_550", "arena", "smollm2")
BOTH_ENDS, BM25 = "both-ends", "bm25"
ROWS = {
    "Gold rules only (ceiling)": ("prompting", {"rules": "gold"}),
    "**DynaRule+**": ("dynarule-plus", {}),
    "IRCoT both ends": ("ircot", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "Stepwise RAG both ends": ("stepwise", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "ReAct both ends": ("react", {"retriever": BOTH_ENDS, "score_share": 0.3, "reworded": True}),
    "RAG BM25": ("rag", {"retriever": BM25}),
    "SR-KI": ("srki", {}),
    "DynaRule (paper)": ("dynarule", {}),
    "KBLaM": ("kblam", {}),
    "No rules (floor)": ("prompting", {"rules": "none"}),
}


def test_the_short_table_is_of_the_committed_runs(runs_of, exact):
    """Each cell, and a dash only where nothing was run."""
    table = re.search(r"^\| method \|.*?\n\n", FRONT, flags=re.M | re.S)[0].strip().splitlines()
    told = {
        label: cells
        for label, *cells in ([each.strip() for each in row.split("|")[1:-1]] for row in table[2:])
    }
    assert [*told] == [*ROWS]
    columns = [(folder, form) for folder in FOLDERS for form in ("fol", "nl")]
    for label, (name, fields) in ROWS.items():
        found = [runs_of(folder, name, form, **fields) for folder, form in columns]
        shown = ["-" if not each else str(exact(each[0])) for each in found]
        assert max(map(len, found)) == 1, label
        assert told[label] == shown, label


def test_the_front_page_is_two_screens_of_short_lines():
    lines = FRONT.splitlines()
    assert len(lines) <= 110
    assert [line for line in lines if len(line) > 120 and not line.startswith(("|", "rwbench", "  -q"))] == []


def test_its_first_question_is_the_first_of_the_test_split():
    from datasets import load_dataset

    row = load_dataset("ruleworld", "single_rule", split="test")[0]
    shown = " ".join(FRONT.replace("\n> ", " ").split())
    assert row["question"] in shown and row["answers"] == ["18"]
