"""``dynarule bank``: build, change and index rule banks on disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .loading import load_model, load_rules, rule_encoder
from .shared import EncoderOption, FolOption, note, progress_bar

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

app = typer.Typer(help="Build, change and index rule banks.", no_args_is_help=True)
Bank = Annotated[Path, typer.Argument(help="Bank folder.", show_default=False)]
RuleFile = Annotated[
    Path, typer.Argument(help=".parquet, .csv, .tsv, or text with a rule per line.", show_default=False)
]
Cache = Annotated[Path | None, typer.Option("--cache", help="Folder that remembers embeddings.")]
TextColumn = Annotated[
    str | None, typer.Option("--text", help="Column of a table.", show_default="nl, rule or text; fol")
]
ConclusionColumn = Annotated[
    str | None,
    typer.Option("--conclusion", help="Its column of conclusions.", show_default="found in the rules"),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Its column of ids.", show_default="id, or line numbers")
]
EncoderModel = Annotated[
    str | None, typer.Option("--model", help="The model that will answer, for --encoder layers:N.")
]


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
    id: IdColumn = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Of the embeddings: fp32, fp16, bf16.")] = "fp32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bank.")] = False,
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Every N-th part only, from the I-th on.")
    ] = "",
    merge: Annotated[bool, typer.Option("--merge", help="Make no part, assemble those of shards.")] = False,
) -> None:
    """Embed a file of rules, in parts that are kept: run it again to finish a build that was stopped.

    With --shard, several processes or machines that share the folder make the parts, in any order; --merge then
    assembles the bank, the same bytes for any number of them.

    Example: dynarule bank build rules.txt --out bank
    """
    from ..bank.build import build_parts, merge_parts, parse_shard, plan_bank
    from ..bank.sources import read_rules
    from ..bank.storage import check_place

    if merge and shard:
        raise ValueError("--shard makes parts and --merge assembles them; give one of them")
    chosen = parse_shard(shard)
    check_place(out, overwrite)
    _check_file(rules)
    read = read_rules(rules, text, conclusion, id, fol)  # before an encoder is loaded for nothing
    if merge:
        _done(out, merge_parts(plan_bank(read, out), overwrite))
        return
    base, tokenizer = (None, None) if model is None else load_model(model, None, None)
    encode = rule_encoder(encoder, fol, model=base, tokenizer=tokenizer, cache=cache)
    plan = plan_bank(read, out, encode.fingerprint, dtype)
    with progress_bar("parts") as show:
        build_parts(plan, encode, chosen, show)
    if shard:
        there = plan.blocks - len(plan.missing())
        note(f"{out}: {there:,} of {plan.blocks:,} parts are there; --merge assembles them")
        return
    _done(out, merge_parts(plan, overwrite))


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
    id: IdColumn = None,
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
    _check_file(rules)
    base, tokenizer = (None, None) if model is None else load_model(model, None, None)
    columns: dict[str, Any] = {"text": text, "conclusion": conclusion, "id": id}
    parts: dict[str, Any] = {"like": like, "model": base, "tokenizer": tokenizer, "cache": cache}
    more = load_rules(rules, encoder, fol, **parts, **columns)
    more.ids = [prefix + name for name in more.ids]
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


@app.command()
def index(bank: Bank) -> None:
    """Index a bank beyond a hundred thousand rules.

    Whoever loads the bank then finds the index instead of building one. A changed bank needs it again; rules that are
    added while the bank serves are found at once.

    Example: dynarule bank index bank
    """
    from ..bank.bank import RuleBank
    from ..bank.faiss_index import EXACT_UP_TO, FaissIndex
    from ..bank.storage import INDEX_FOLDER

    held, started = RuleBank.load(bank), time.perf_counter()
    made = FaissIndex(held, "fastscan", folder=bank / INDEX_FOLDER)
    note(
        f"{bank / INDEX_FOLDER}: {len(held):,} rules in {made.nlist:,} clusters, {made.bytes_per_rule} bytes a rule, "
        f"{time.perf_counter() - started:,.0f} s"
    )
    if len(held) <= EXACT_UP_TO:
        note(f"up to {EXACT_UP_TO:,} rules every rule is scored, so only FaissIndex in code reads this one")


def _check_file(rules: Path) -> None:
    if rules.is_dir():
        raise ValueError(f"{rules} is a folder; expected a file of rules (.parquet, .csv, .tsv or text)")


def _done(folder: Path, bank: RuleBank) -> None:
    note(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}")
