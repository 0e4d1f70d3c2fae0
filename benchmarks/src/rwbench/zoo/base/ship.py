"""A trained base as a model folder: weights in bfloat16, tokenizer, prompt, and a card that says what it can do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import torch

from ..models import replaced_folder
from .documents import Writer
from .gates import GateResult, gate_table, run_gates
from .recipe import BaseRecipe
from .tokenizer import TokenVocabulary, build_tokenizer
from .train import trained_base

GATES_FILE = "gates.json"
LARGEST = 16 * 2**20
"""Bytes of a file that a repository should hold."""


def write_base(
    recipe: BaseRecipe,
    vocabulary: TokenVocabulary,
    training: Path,
    to: Path,
    questions: int = 100,
    lists: int = 16,
) -> dict[str, int]:
    """Write the base of a training folder as a model folder; what was there before is replaced as a whole.

    Gates are measured on the weights as they are written.

    Returns
    -------
    dict
        Bytes by file name.

    Raises
    ------
    FileNotFoundError
        If the training has no checkpoint.
    ValueError
        If it is another recipe's, ``to`` holds something else, or a file would be larger than 16 MiB.
    """
    if to.exists() and not (to / GATES_FILE).is_file():
        raise ValueError(f"{to} is no base that was written here and would be deleted; give another --to")
    trainer = trained_base(recipe, vocabulary, training)
    model, summary = trainer.model, trainer.summary()
    torch.nn.Module.to(model, torch.bfloat16)
    model.generation_config.do_sample = False
    with replaced_folder(to) as new:
        model.save_pretrained(new, max_shard_size="15MB")
        build_tokenizer(vocabulary, recipe.shape.positions).save_pretrained(new)
        cells = list(run_gates(model.float(), Writer(vocabulary, recipe.context_weight), lists, questions))
        for name, text in {
            "prompt.toml": _packaged("prompt.toml"),
            GATES_FILE: json.dumps([asdict(cell) for cell in cells], indent=1) + "\n",
            "training.json": json.dumps(summary, indent=2) + "\n",
            "README.md": card(recipe, summary, cells),
        }.items():
            (new / name).write_bytes(text.encode())
        sizes = {path.name: path.stat().st_size for path in sorted(new.iterdir())}
        large = [name for name, size in sizes.items() if size > LARGEST]
        if large:
            raise ValueError(f"{', '.join(large)} in {new}: more than {LARGEST:,} bytes; use a smaller shape")
    return sizes


def card(recipe: BaseRecipe, summary: dict[str, Any], cells: Sequence[GateResult]) -> str:
    """Return the model card."""
    return Template(_packaged("card.md")).substitute(
        asdict(recipe.shape),
        name=recipe.name,
        seed=recipe.seed,
        tokens=f"{summary['tokens'] / 1e6:.1f}",
        steps=f"{summary['steps']:,}",
        hours=f"{summary['hours']:.2f}",
        levels=", ".join(f"{name} {size}" for name, size in summary["levels"].items()),
        finished="the whole recipe" if summary["finished"] else "a part of the recipe",
        gates=gate_table(cells),
    )


def _packaged(name: str) -> str:
    return (files("rwbench.zoo.base") / name).read_text(encoding="utf-8")
