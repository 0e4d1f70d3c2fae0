"""``dynarule bank``: build, look at and change rule banks on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .loading import load_model, load_rules
from .shared import EncoderOption, FolOption, Json, print_json

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
    bank = _encode(rules, encoder, fol, model, cache, text, conclusion, id)
    _save(bank, out, quiet, overwrite)


@app.command()
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
    more = _encode(rules, encoder, fol, model, cache, text, conclusion, id, held.encoder)
    more.ids = [prefix + name for name in more.ids]
    held.add(more)
    _save(held, bank, quiet)


@app.command()
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
    _save(held, bank, quiet)


@app.command()
def info(bank: Bank, as_json: Json = False) -> None:
    """Say what a bank holds.

    Example: dynarule bank info bank
    """
    held = _open(bank, mmap=True)
    dtype = str(held.keys_MP.dtype).removeprefix("torch.")
    first = [{"id": name, "text": text} for name, text in zip(held.ids[:3], held.texts[:3], strict=True)]
    if as_json:
        about = {"kind": "bank", "rules": len(held), "width": held.encoder_dim, "dtype": dtype}
        print_json(about | {"encoder": held.encoder, "first": first})
        return
    typer.echo(f"{bank}: {len(held):,} rules, width {held.encoder_dim}, {dtype}")
    typer.echo(f"encoder  {held.encoder or '(unknown)'}")
    for rule in first:
        typer.echo(f"{rule['id']:>7}  {rule['text']}")


def _encode(
    rules: Path,
    encoder: str | None,
    fol: bool,
    model: str | None,
    cache: Path | None,
    text: str | None,
    conclusion: str | None,
    id: str,
    like: str = "",
) -> RuleBank:
    base, tokenizer = (None, None) if model is None else load_model(model, None, None)
    named: dict[str, Any] = {"text": text, "conclusion": conclusion, "id": id}
    columns = {name: value for name, value in named.items() if value}
    return load_rules(rules, encoder, fol, like=like, model=base, tokenizer=tokenizer, cache=cache, **columns)


def _open(folder: Path, mmap: bool = False) -> RuleBank:
    """Load a bank; without memory mapping where it will be replaced."""
    from ..bank.bank import RuleBank

    return RuleBank.load(folder, mmap=mmap)


def _save(bank: RuleBank, folder: Path, quiet: bool, overwrite: bool = True) -> None:
    bank.save(folder, overwrite=overwrite)
    if not quiet:
        typer.echo(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}", err=True)
