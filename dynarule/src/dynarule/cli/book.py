"""``dynarule book``: a rule book out of documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import note, note_unseen

app = typer.Typer(help="Make rule books out of documents.", no_args_is_help=True)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="New folder.", show_default=False)],
    documents: Annotated[
        list[Path],
        typer.Option(
            "--from",
            help=".md, .txt, .html, .docx, .pdf, .csv, .tsv, .xlsx, .jsonl, ..., or a folder of them; several times.",
            show_default=False,
        ),
    ],
    text: Annotated[str | None, typer.Option("--text", help="Column of rules, in tables.")] = None,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", help="Column that says what follows; several times.")
    ] = None,
) -> None:
    """Read the rules of documents into FOLDER/rules.csv, and show on FOLDER/review.html what was made of them.

    Correct rules.csv by hand where needed, then: dynarule bank build FOLDER/rules.csv --out FOLDER/bank.

    Example: dynarule book new handbook --from policy.md --from fees.xlsx
    """
    from ..books.review import write_book
    from ..books.rules import read_book

    if folder.exists():
        raise FileExistsError(f"{folder} exists already; choose a new folder")
    reading = read_book(documents, text=text, outcomes=outcome)
    for problem in reading.problems:
        note(problem)
    note_unseen("rules", [rule.text for rule in reading.rules])
    write_book(folder, reading)
    unsure = sum(not rule.sure for rule in reading.rules)
    note(
        f"{folder}/rules.csv: {len(reading.rules):,} rules, {unsure:,} of them without a condition of their own; "
        f"{len(reading.left_out):,} passages left out, see {folder}/review.html"
    )
