"""``dynarule bank`` and ``dynarule book``: rule banks on disk, rule books out of documents, and drafts of questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .loading import Reading
from .shared import grouped, note, note_unseen, progress_bar

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

app = typer.Typer(help="Build and change rule banks.", no_args_is_help=True)
Bank = Annotated[Path, typer.Argument(help="Bank folder.", show_default=False)]
RuleFile = Annotated[
    Path, typer.Argument(help=".parquet, .csv, .tsv, or text with a rule per line.", show_default=False)
]
UNFINISHED = ".embeddings"
"""Folder of a bank that is being built, with what is embedded so far: a build that was stopped goes on from there."""


@app.command()
@grouped
def build(
    rules: RuleFile,
    out: Annotated[Path, typer.Option("--out", help="New folder.", show_default=False)],
    reading: Reading,
    dtype: Annotated[str, typer.Option("--dtype", help="Of the embeddings: fp32, fp16, bf16.")] = "fp32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bank.")] = False,
) -> None:
    """Embed a file of rules; run it again to finish a build that was stopped.

    Example: dynarule bank build rules.txt --out bank
    """
    import torch

    from ..bank.bank import RuleBank
    from ..bank.embedding_cache import EmbeddingCache
    from ..bank.storage import check_place

    dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    if dtype not in dtypes:
        raise ValueError(f"dtype must be one of {', '.join(dtypes)}, got {dtype!r}")
    check_place(out, overwrite)
    given = reading.read(rules)  # before an encoder is loaded for nothing
    unfinished = out / UNFINISHED
    if links := [path for path in (unfinished, *unfinished.rglob("*")) if path.is_symlink()]:
        raise ValueError(f"{links[0]} is a link, which could lead anywhere; remove it")
    encode = EmbeddingCache(reading.open_encoder(), unfinished)
    with progress_bar("texts") as show:
        bank = RuleBank.from_rules(given, encode, dtype=dtypes[dtype], progress=show)
    bank.save(out, overwrite)
    shutil.rmtree(unfinished, ignore_errors=True)
    _done(out, bank)


@app.command()
@grouped
def add(
    bank: Bank,
    rules: RuleFile,
    reading: Reading,
    prefix: Annotated[str, typer.Option("--prefix", help="Put before the new ids.")] = "",
) -> None:
    """Add the rules of a file, embedded with the encoder the bank has.

    Rules of a text file have their line numbers as ids; --prefix keeps them apart from the ones that are there. A rule
    that is there already, under any id, is refused, and nothing is added.

    Example: dynarule bank add bank more.txt --prefix more-
    """
    from ..bank.bank import RuleBank
    from ..bank.storage import changed_bank

    like = RuleBank.load(bank).encoder
    given = reading.read(rules)
    given = given._replace(ids=[prefix + name for name in given.ids])
    more = RuleBank.from_rules(given, reading.open_encoder(like))
    with changed_bank(bank) as held:
        held.add(more)
    _done(bank, held)


@app.command()
def remove(
    bank: Bank,
    ids: Annotated[list[str], typer.Argument(help="Ids of rules.", show_default=False)],
) -> None:
    """Remove rules by id.

    Example: dynarule bank remove bank 12 40
    """
    from ..bank.storage import changed_bank

    with changed_bank(bank) as held:
        held.remove(ids)
    _done(bank, held)


def _done(folder: Path, bank: RuleBank) -> None:
    note(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}")


books = typer.Typer(help="Make rule books out of documents.", no_args_is_help=True)


@books.command()
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


@books.command()
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
        raise ValueError(f"no rule of {folder} has a premise of its own, to ask from; write {target}")
    write_whole(drafts, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))
    chains = sum(len(row["steps"]) > 1 for row in made)
    note(f"{drafts}: {len(made)} drafts, {chains} of them chains; correct them and save them as {target}")
