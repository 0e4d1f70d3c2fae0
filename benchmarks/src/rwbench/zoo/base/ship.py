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

from ...run.environment import environment
from ..models import replaced_folder
from .curriculum import Curriculum
from .documents import Writer
from .gates import GateResult, gate_table, run_gates
from .recipe import BaseRecipe
from .tokenizer import TokenVocabulary, build_tokenizer
from .train import trained_base

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
        If it is another recipe's, or a file would be larger than 16 MiB.
    """
    model, state = trained_base(recipe, vocabulary, training)
    torch.nn.Module.to(model, torch.bfloat16)
    model.generation_config.do_sample = False
    with replaced_folder(to) as new:
        model.save_pretrained(new, max_shard_size="15MB")
        build_tokenizer(vocabulary, recipe.shape.positions).save_pretrained(new)
        (new / "prompt.toml").write_bytes(_data("prompt.toml"))
        cells = list(run_gates(model.float(), Writer(vocabulary, recipe.context_weight), lists, questions))
        (new / "gates.json").write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
        (new / "training.json").write_text(json.dumps(_summary(recipe, state), indent=2) + "\n")
        (new / "README.md").write_text(card(recipe, state, cells), encoding="utf-8")
        sizes = {path.name: path.stat().st_size for path in sorted(new.iterdir())}
        large = [name for name, size in sizes.items() if size > LARGEST]
        if large:
            raise ValueError(f"{', '.join(large)} in {new}: more than {LARGEST:,} bytes; use a smaller shape")
    return sizes


def card(recipe: BaseRecipe, state: dict[str, Any], cells: Sequence[GateResult]) -> str:
    """Return the model card."""
    shape, summary = recipe.shape, _summary(recipe, state)
    return Template(_data("card.md").decode()).substitute(
        name=recipe.name,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        seed=recipe.seed,
        tokens=f"{summary['tokens'] / 1e6:.1f}",
        steps=f"{summary['steps']:,}",
        hours=f"{summary['hours']:.2f}",
        levels=", ".join(f"{name} {size}" for name, size in summary["levels"].items()),
        finished="the whole recipe" if summary["finished"] else "a part of the recipe",
        after=_after(state["earlier"]),
        gates=gate_table(cells),
    )


def _after(earlier: dict[str, Any]) -> str:
    if not earlier:
        return ""
    names = ", ".join(f"`{name}`" for name in earlier["recipes"])
    return f" after {names} ({earlier['tokens'] / 1e6:.1f} M tokens)"


def _summary(recipe: BaseRecipe, state: dict[str, Any]) -> dict[str, Any]:
    curriculum = Curriculum(recipe.raise_at, recipe.raise_least)
    curriculum.load(state["curriculum"])
    earlier = state["earlier"] or {"tokens": 0, "steps": 0, "hours": 0.0}
    return {
        "recipe": recipe.to_dict(),
        "earlier": state["earlier"],
        "tokens": earlier["tokens"] + state["position"]["tokens"],
        "steps": earlier["steps"] + state["position"]["step"],
        "hours": round(earlier["hours"] + state["seconds"] / 3600, 3),
        "finished": state["position"]["phase"] >= len(recipe.phases),
        "levels": {name: curriculum.size(name) for name in curriculum.levels},
        "environment": environment(),
    }


def _data(name: str) -> bytes:
    return (files("rwbench.zoo.base") / name).read_bytes()
