"""``dynarule book``: a rule book out of documents, and drafts of questions about it."""

import json
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
    from ..books.readers import read_book
    from ..books.rules import write_book

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


@app.command()
def questions(
    folder: Annotated[Path, typer.Argument(help="Folder with rules.csv or rules.txt.", show_default=False)],
    count: Annotated[int, typer.Option("--count", min=1, help="Questions at most.")] = 30,
) -> None:
    """Write drafts of questions about a book, from its rules and their chains, for a person to correct.

    A chain goes on where the words of a conclusion say the next premise, so some are wrong, and where several rules
    have the premise the others stand under "also". Correct FOLDER/drafts.jsonl, add questions whose "answers" are
    ["unknown"], and save it as FOLDER/questions.jsonl, which `rwbench run book` and `dynarule support` read.

    Example: dynarule book questions handbook
    """
    from .._files import write_whole
    from ..bank.sources import read_rules
    from ..books.questions import draft_questions

    drafts, target = folder / "drafts.jsonl", folder / "questions.jsonl"
    if drafts.exists():
        raise FileExistsError(f"{drafts} exists already; move it away, it may hold corrections")
    table = folder / "rules.csv"
    made = draft_questions(read_rules(table if table.is_file() else folder / "rules.txt"), count)
    if not made:
        raise ValueError(
            f"no rule of {folder} has a premise of its own, so there is nothing to ask from; write {target}"
        )
    write_whole(drafts, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))
    chains = sum(len(row["steps"]) > 1 for row in made)
    note(f"{drafts}: {len(made)} drafts, {chains} of them chains; correct them and save them as {target}")
