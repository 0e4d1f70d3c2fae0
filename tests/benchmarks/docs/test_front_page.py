"""The front page: its short table and what it says of it, from the committed runs and the longer pages."""

import json
import re
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FRONT = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
NUMBER = r"(-?[\d.]+)"
FOLDERS = ("arena", "held_out_550", "smollm2")
BOTH_ENDS, BM25, DENSE = "both-ends", "bm25", "dense"
ROWS = {
    "Gold rules only (ceiling)": ("prompting", {"rules": "gold"}),
    "**DynaRule+** (first training)": ("dynarule-plus", {}),
    "IRCoT both ends": ("ircot", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "Stepwise RAG both ends": ("stepwise", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "RAG both ends": ("rag", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "ReAct both ends": ("react", {"retriever": BOTH_ENDS, "score_share": 0.3, "reworded": True}),
    "RAG BM25": ("rag", {"retriever": BM25}),
    "RAG Dense (MiniLM-L6)": ("rag", {"retriever": DENSE}),
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


def test_the_front_page_says_what_the_page_of_results_says(said, run_of, mean_lead):
    """Numbers that the page of results has, from the runs there; and what is said of held-out rules, here alone."""
    results = (BENCHMARKS / "docs/results.md").read_text(encoding="utf-8")
    *near, bundled, smollm2, behind, low, high = said(
        rf"of the nearest by {NUMBER} to {NUMBER} points on the bundled model \(mean of three trainings\) and by "
        rf"{NUMBER} to {NUMBER} on SmolLM2; it asks the model once a question, Stepwise RAG {NUMBER}, IRCoT {NUMBER} "
        rf"and ReAct {NUMBER} times\. "
        rf"- \*\*In logic IRCoT is level with it\*\*: {NUMBER} points on the bundled model \(mean of three\) and "
        rf"{NUMBER} on SmolLM2 may be chance; on held-out rules it is behind by {NUMBER} \({NUMBER} to "
        rf"{NUMBER}; mean of three\)",
        FRONT,
    )
    logic, *english = said(
        rf"they are [\d.]+ and {NUMBER} points behind the mean of its three trainings in logic, which may be chance "
        rf".*?, and {NUMBER} and {NUMBER} in English .*?, and ask the model {NUMBER} and {NUMBER} times",
        results,
    )
    (acts,) = said(rf"It asks the model most, {NUMBER} times a question", results)
    *there, chance = said(
        rf"of Stepwise RAG by {NUMBER} \([^)]*\), of ReAct by {NUMBER} \([^)]*\), of IRCoT by {NUMBER} \([^)]*\)\. "
        rf"In logic .*? and of IRCoT by {NUMBER}, which may be chance",
        results,
    )
    assert near == [*sorted(english[:2]), min(there), max(there), *english[2:], acts]
    assert (bundled, smollm2) == (logic, chance)
    ours = [run_of("held_out_550", "dynarule-plus", "fol", variant=each) for each in ("", "seed-1", "seed-2")]
    theirs = run_of("held_out_550", "ircot", "fol", score_share=0.3)
    assert mean_lead("held_out_550", ours, theirs) == [behind, low, high]
    paper = rf"has {NUMBER} (?:among 10,000 rules )?for DynaRule and {NUMBER} for SR-KI"
    assert said(paper, FRONT) == said(paper, results)


def test_what_a_first_token_takes_among_all_rules(said):
    rules, first, cold, further = said(
        rf"All ([\d,]+) rules in memory.* A first token takes {NUMBER} times what it takes without rules, {NUMBER} "
        rf"times where the rules it reads are new, a further one {NUMBER} times \(0\.5B shape, one core",
        FRONT,
    )
    table = json.loads((BENCHMARKS / "results/efficiency/cpu-qwen2-0.5b-ruleworld/serving.json").read_text())
    (cell,) = (each for each in table["cells"] if (each["method"], each["rules"]) == ("dynarule-plus", rules))
    assert [round(cell[f"{name}_ratio"]["median"], 2) for name in ("ttft", "decode")] == [first, further]
    assert round(cell["cold_ttft_ms"]["median"] / cell["base_ttft_ms"]["median"], 2) == cold
    assert (table["settings"]["shape"], table["settings"]["threads"]) == ("qwen2-0.5b", 1)
