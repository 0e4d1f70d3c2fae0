"""The part of ``dynarule train`` that needs torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bank import RuleBank


def settings_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs of a recipe; values are JSON, or text.

    Raises
    ------
    ValueError
        If a pair has no ``=``, or the name is not of a recipe.
    """
    from .recipe import Recipe

    known = [f.name for f in fields(Recipe)]
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set {pair}: expected name=value with a name of {known}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
        if isinstance(found[name], list):
            found[name] = tuple(found[name])
    return found


def run(
    model: Any,
    tokenizer: Any,
    bank: RuleBank,
    rows: Sequence[Any],
    out: Path,
    stage: int,
    method: str,
    start: Path | None,
    confidence_layer: int | None,
    pairs: Sequence[str],
    resume: bool,
    report_to: str,
) -> None:
    """Train one stage with what the command line says."""
    import torch

    from .adapter import RuleAdapter
    from .adapter_io import load_adapter
    from .config import dynarule_config, kblam_config, srki_config
    from .recipe import paper_recipe
    from .search import prepare_search
    from .train import train

    changes = settings_of(pairs)
    if method not in ("dynarule", "srki", "kblam"):
        raise ValueError(f"--method must be dynarule, srki or kblam, got {method!r}")
    recipe = paper_recipe(method, stage, **changes)  # type: ignore[arg-type]
    if stage == 2 and method != "kblam" and start is None:
        raise ValueError("stage 2 starts from stage 1; give --adapter with the folder that stage 1 wrote")
    if recipe.searches:
        prepare_search(model, tokenizer)
    if start is None:
        make = {"dynarule": dynarule_config, "srki": srki_config, "kblam": kblam_config}[method]
        torch.manual_seed(recipe.seed)
        adapter = RuleAdapter(model, make(bank.encoder_dim))
    else:
        adapter = load_adapter(model, start)
    adapter.encoder = bank.encoder
    if confidence_layer is not None:
        adapter.config = replace(adapter.config, confidence_layer=confidence_layer)
    train(model, tokenizer, adapter, rows, bank, recipe, out, resume=resume, report_to=report_to)
