"""The front page: its short table and what it says of it, from the committed runs and the longer pages."""

import re
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FRONT = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
NUMBER = r"(-?[\d.]+)"
FOLDERS = ("arena", "held_out_550", "smollm2")
BOTH_ENDS, BM25, DENSE = "both-ends", "bm25", "dense"
ROWS = {
    "Gold rules only (ceiling)": ("prompting", {"rules": "gold"}),
    "**DynaRule+**": ("dynarule-plus", {}),
    "IRCoT both ends": ("ircot", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "Stepwise RAG both ends": ("stepwise", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "RAG both ends": ("rag", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "ReAct both ends": ("react", {"retriever": BOTH_ENDS, "score_share": 0.3}),
    "RAG BM25": ("rag", {"retriever": BM25}),
    "RAG Dense (MiniLM-L6)": ("rag", {"retriever": DENSE}),
    "SR-KI": ("srki", {}),
    "DynaRule (paper)": ("dynarule", {}),
    "KBLaM": ("kblam", {}),
    "No rules (floor)": ("prompting", {"rules": "none"}),
}


def test_the_short_table_is_of_the_committed_runs(runs_of, exact):
    """Each cell, and a dash only where nothing was run; what is bold is the best of its column, ceiling aside."""
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
        assert [cell.strip("*") for cell in told[label]] == shown, label
    values = [
        [float(cell.strip("*")) for cell in column if cell != "-"]
        for column in zip(*told.values(), strict=True)
    ]
    bold = [[cell for cell in column if "*" in cell] for column in zip(*told.values(), strict=True)]
    assert bold == [[f"**{sorted(column)[-2]}**"] for column in values]


def test_the_front_page_says_what_the_pages_say(said):
    """Numbers that the page of results has, rounded off there by tests of its own."""
    results = (BENCHMARKS / "docs/results.md").read_text(encoding="utf-8")
    nearest = said(
        rf"of its nearest rivals by {NUMBER} to {NUMBER} points on the mean of three trainings and by {NUMBER} to "
        rf"{NUMBER} on SmolLM2, and it asks the model once a question where they ask {NUMBER} and {NUMBER} times\. "
        rf"- \*\*In logic IRCoT is level with it\*\*: {NUMBER} points on the bundled model and {NUMBER} on SmolLM2 may "
        rf"be chance\. On held-out rules it is behind by {NUMBER} \({NUMBER} to {NUMBER}\)\.",
        FRONT,
    )
    logic, first, other, *calls = said(
        rf"they are [\d.]+ and {NUMBER} points behind the mean of its three trainings in logic, which may be chance "
        rf".*?, and {NUMBER} and {NUMBER} in English .*?, and ask the model {NUMBER} and {NUMBER} times",
        results,
    )
    stepwise, ircot, chance = said(
        rf"of Stepwise RAG by {NUMBER} \([^)]*\), of IRCoT by {NUMBER} \([^)]*\)\. In logic .*? and of IRCoT by "
        rf"{NUMBER}, which may be chance",
        results,
    )
    unseen = said(
        rf"behind the mean of DynaRule\+'s three trainings by [\d.]+ and {NUMBER} points in logic \([^,]*, {NUMBER} to "
        rf"{NUMBER}\)",
        results,
    )
    english = sorted((first, other)), sorted((stepwise, ircot))
    assert nearest == [*english[0], *english[1], *calls, logic, chance, *unseen]
    all_rules = said(
        rf"{NUMBER} and {NUMBER}, the best other method asked {NUMBER} and {NUMBER}; a first token takes "
        rf"{NUMBER} times what it takes without rules, a further one {NUMBER} times",
        FRONT,
    )
    assert all_rules == said(
        rf"and {NUMBER} and {NUMBER} among all 4,936,113, the best other method asked there [\d.]+ and [\d.]+, and "
        rf"{NUMBER} and {NUMBER}, .*? a first token takes {NUMBER} times .*?, and a further token {NUMBER} times",
        results,
    )
    pair = rf"{NUMBER}[ ,and]* RAG from both ends {NUMBER}"
    assert said(rf"DynaRule\+ has {pair}", FRONT) == said(rf"on SmolLM2 has {pair}", results)
    paper = rf"has {NUMBER} (?:among 10,000 rules )?for DynaRule and {NUMBER} for SR-KI"
    assert said(paper, FRONT) == said(paper, results)
