"""``dynarule bank``: build, look at and change rule banks on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .shared import EncoderOption, FolOption, Json, load_model, load_rules, print_json, user_errors

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

app = typer.Typer(help="Build, look at and change rule banks.", no_args_is_help=True)
Bank = Annotated[Path, typer.Argument(help="Bank folder.", show_default=False)]
RuleFile = Annotated[
    Path,
    typer.Argument(
        help=".parquet, .tsv (rule, tab, conclusion), or text with a rule per line.", show_default=False
    ),
]
Cache = Annotated[Path | None, typer.Option("--cache", help="Folder that remembers embeddings.")]
TextColumn = Annotated[
    str | None, typer.Option("--text", help="Column of a parquet file.", show_default="nl, or fol")
]
ConclusionColumn = Annotated[
    str | None, typer.Option("--conclusion", help="Its column of conclusions.", show_default="conclusion_nl")
]
IdColumn = Annotated[str, typer.Option("--id", help="Its column of ids.")]
EncoderModel = Annotated[
    str | None, typer.Option("--model", help="The model that will answer, for --encoder layers:N.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing.")]


@app.command()
@user_errors
def build(
    rules: RuleFile,
    out: Annotated[Path, typer.Option("--out", help="New folder.", show_default=False)],
    encoder: EncoderOption = None,
    model: EncoderModel = None,
    fol: FolOption = False,
    cache: Cache = None,
    text: TextColumn = None,
    conclusion: ConclusionColumn = None,
    id: IdColumn = "id",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bank.")] = False,
    quiet: Quiet = False,
) -> None:
    """Embed a file of rules.

    Example: dynarule bank build rules.txt --out bank
    """
    if out.exists() and not overwrite:  # before the hours that encoding may take
        raise FileExistsError(f"{out} exists already; choose a new folder, or type --overwrite")
    if rules.is_dir():
        raise ValueError(f"{rules} is a folder; expected a file of rules (.parquet, .tsv or text)")
    base, tokenizer = _model(model)
    bank = load_rules(rules, encoder, fol, cache, text, conclusion, id, model=base, tokenizer=tokenizer)
    bank.save(out, overwrite=overwrite)
    _say(out, bank, quiet)


@app.command()
@user_errors
def add(
    bank: Bank,
    rules: RuleFile,
    encoder: EncoderOption = None,
    model: EncoderModel = None,
    fol: FolOption = False,
    cache: Cache = None,
    text: TextColumn = None,
    conclusion: ConclusionColumn = None,
    id: IdColumn = "id",
    prefix: Annotated[str, typer.Option("--prefix", help="Put before the new ids.")] = "",
    quiet: Quiet = False,
) -> None:
    """Add the rules of a file, embedded with the encoder the bank has.

    Rules of a text file have their line numbers as ids; --prefix keeps them apart from the ones that are there. A rule
    that is there already, under any id, is refused, and nothing is added.

    Example: dynarule bank add bank more.txt --prefix more-
    """
    held = _open(bank)
    base, tokenizer = _model(model)
    more = load_rules(
        rules,
        encoder,
        fol,
        cache,
        text,
        conclusion,
        id,
        like=held.encoder,
        model=base,
        tokenizer=tokenizer,
    )
    more.ids = [prefix + name for name in more.ids]
    held.add(more)
    held.save(bank, overwrite=True)
    _say(bank, held, quiet)


@app.command()
@user_errors
def remove(
    bank: Bank,
    ids: Annotated[list[str], typer.Argument(help="Ids of rules.", show_default=False)],
    quiet: Quiet = False,
) -> None:
    """Remove rules by id.

    Example: dynarule bank remove bank 12 40
    """
    held = _open(bank)
    held.remove(ids)
    held.save(bank, overwrite=True)
    _say(bank, held, quiet)


@app.command()
@user_errors
def info(bank: Bank, as_json: Json = False) -> None:
    """Say what a bank holds.

    Example: dynarule bank info bank
    """
    from ..bank.bank import RuleBank

    show_bank(bank, RuleBank.load(bank), as_json)


def show_bank(folder: Path, bank: RuleBank, as_json: bool) -> None:
    """Print a bank's number of rules, width, encoder and first rules."""
    first = [{"id": bank.ids[i], "text": bank.texts[i]} for i in range(min(3, len(bank)))]
    about = {
        "kind": "bank",
        "rules": len(bank),
        "width": bank.encoder_dim,
        "dtype": str(bank.keys_MP.dtype).removeprefix("torch."),
        "encoder": bank.encoder,
        "first": first,
    }
    if as_json:
        print_json(about)
        return
    typer.echo(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}, {about['dtype']}")
    typer.echo(f"encoder  {bank.encoder or '(unknown)'}")
    for rule in first:
        typer.echo(f"{rule['id']:>7}  {rule['text']}")


def _open(folder: Path) -> RuleBank:
    from ..bank.bank import RuleBank

    return RuleBank.load(folder, mmap=False)  # it will be replaced


def _model(name: str | None) -> tuple[Any, Any]:
    return (None, None) if name is None else load_model(name, None, None)


def _say(folder: Path, bank: RuleBank, quiet: bool) -> None:
    if not quiet:
        typer.echo(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}", err=True)
