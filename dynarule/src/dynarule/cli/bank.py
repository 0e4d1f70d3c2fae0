"""``dynarule bank``: build and change rule banks on disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .loading import load_model, rule_encoder
from .shared import (
    EncoderOption,
    grouped,
    note,
    note_parts,
    note_unseen,
    progress_bar,
)

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..bank.sources import Rules

app = typer.Typer(help="Build and change rule banks.", no_args_is_help=True)
Bank = Annotated[Path, typer.Argument(help="Bank folder.", show_default=False)]
RuleFile = Annotated[
    Path, typer.Argument(help=".parquet, .csv, .tsv, or text with a rule per line.", show_default=False)
]
UNFINISHED = ".embeddings"
"""Folder of a bank that is being built, with what is embedded so far: a build that was stopped goes on from there."""


@dataclass(frozen=True)
class Reading:
    """How rules are read from a file, and what encodes them."""

    encoder: EncoderOption = None
    model: Annotated[
        str | None, typer.Option("--model", help="The model that will answer, for --encoder layers:N.")
    ] = None
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="The adapter that will read it: its encoder is taken.")
    ] = None

    def read(self, path: Path) -> Rules:
        """Read a file of rules."""
        from ..bank.sources import read_rules

        if path.is_dir():
            raise ValueError(f"{path} is a folder; expected a file of rules (.parquet, .csv, .tsv or text)")
        rules = read_rules(path)
        note_unseen("rules", rules.texts)
        note_parts(rules)
        return rules

    def open_encoder(self, like: str = "") -> Any:
        """Open the encoder that is named, else the one of a fingerprint, or of the adapter."""
        from ..config import DynaRuleConfig

        if self.adapter is not None:
            like = like or DynaRuleConfig.from_pretrained(self.adapter).encoder
        base, tokenizer = (None, None) if self.model is None else load_model(self.model, None, None)
        return rule_encoder(self.encoder, like=like, model=base, tokenizer=tokenizer)


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
