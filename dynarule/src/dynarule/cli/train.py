"""The part of ``dynarule train`` that needs torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..training.recipe import Recipe

MEASUREMENTS = 10  # of held-out questions in a run


@dataclass(frozen=True)
class Request:
    """What the command line asks for, besides what it names by file.

    Attributes
    ----------
    out : Path
        Folder of the run.
    stage, method : int, str
        Of the recipe.
    adapter : Path or None
        To start from.
    confidence_layer : int or None
        None: the adapter's.
    pairs : tuple of str
        ``name=value`` changes of the recipe.
    additions : tuple of str
        Additions to the recipe.
    resume : bool
        Go on from the newest checkpoint.
    report_to : str
        Of the Trainer.
    step_text : str or None
        Key of a step's text; None: the first of text, nl (fol with ``fol``) that steps have.
    fol : bool
        The rules are logic.
    opening : bool
        ``<search>`` before the first step too.
    """

    out: Path
    stage: int
    method: str
    adapter: Path | None
    confidence_layer: int | None
    pairs: tuple[str, ...]
    additions: tuple[str, ...]
    resume: bool
    report_to: str
    step_text: str | None
    fol: bool
    opening: bool


def _value(text: str) -> Any:
    """Read a value: JSON, or text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def settings_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs of a recipe.

    Raises
    ------
    ValueError
        If a pair has no ``=``, or the name is not of a recipe.
    """
    from ..training.recipe import Recipe

    known = [f.name for f in fields(Recipe) if f.name != "additions"]
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set {pair}: expected name=value with a name of {known}")
        found[name] = _value(value)
    return found


def additions_of(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read ``name`` or ``name:setting=value,setting=value``."""
    found = {}
    for word in words:
        name, _, settings = word.partition(":")
        pairs = (pair.partition("=") for pair in settings.split(",") if pair)
        found[name] = {setting: _value(value) for setting, _, value in pairs}
    return found


def plan(request: Request, rows: Sequence[Any]) -> Recipe:
    """Return the recipe, checked as far as that needs no model.

    Raises
    ------
    ValueError
        If a setting is wrong, or stage 2 has nothing to start from.
    """
    from ..training.pools import families
    from ..training.recipe import PAPER_MIX, paper_recipe

    changes = settings_of(request.pairs)
    added = additions_of(request.additions) | ({"opening_search": {}} if request.opening else {})
    if request.method not in ("dynarule", "srki", "kblam"):
        raise ValueError(f"--method must be dynarule, srki or kblam, got {request.method!r}")
    if request.stage == 2 and request.method != "kblam" and request.adapter is None:
        raise ValueError("stage 2 starts from stage 1; give --adapter with the folder that stage 1 wrote")
    recipe = paper_recipe(request.method, request.stage, additions=added, **changes)  # type: ignore[arg-type]
    if "mix" not in changes:
        columns = rows[0].keys() & {"family", "subtask"}
        if not columns or set(families(rows)) != set(PAPER_MIX):
            recipe = replace(recipe, mix=None)
            _note("the questions are not of the paper's three families, so all are drawn alike (mix=null)")
    return recipe


def run(
    request: Request,
    recipe: Recipe,
    model: Any,
    tokenizer: Any,
    bank: RuleBank,
    rows: Sequence[Any],
    held_out: Sequence[Any] | None,
) -> None:
    """Train one stage with what the command line says."""
    from ..bank.sources import premise_of
    from ..memory.search import prepare_search
    from ..training.data import Encoder
    from ..training.log import LogLines
    from ..training.recipe import recipe_steps
    from ..training.trainer import train

    adapter = _adapter(request, recipe, model, tokenizer, bank)
    if recipe.searches:  # after the adapter, whose base may be one row shorter
        prepare_search(model, tokenizer)
    encoder = Encoder(
        tokenizer,
        {name: row for row, name in enumerate(bank.ids)},
        step_text=request.step_text or _step_text(rows[0], request.fol),
    )
    measuring: dict[str, Any] = {}
    if held_out is not None:
        steps = recipe_steps(recipe, len(rows))
        measuring = {"eval_strategy": "steps", "eval_steps": max(1, -(-steps // MEASUREMENTS))}
    train(
        model,
        tokenizer,
        adapter,
        rows,
        bank,
        recipe,
        request.out,
        held_out=held_out,
        premises=[premise_of(text) for text in bank.texts],
        encoder=encoder,
        resume=request.resume,
        curve=_curve(request, adapter),
        callbacks=[LogLines()],
        report_to=request.report_to,
        # Without it processes on a CPU do not find each other: each would train, and save, alone.
        use_cpu=model.device.type == "cpu",
        **measuring,
    )
    _note(f"wrote {request.out}: the adapter, README.md (its model card), log.json")


def _adapter(request: Request, recipe: Recipe, model: Any, tokenizer: Any, bank: RuleBank) -> Any:
    """Return a new adapter, or the one to start from."""
    import torch

    from ..adapter_info import read_adapter_info
    from ..adapter_io import load_adapter
    from ..config import dynarule_config, kblam_config, srki_config
    from ..memory.search import prepare_search
    from ..projection import RuleAdapter

    if request.adapter is None:
        make = {"dynarule": dynarule_config, "srki": srki_config, "kblam": kblam_config}[request.method]
        torch.manual_seed(recipe.seed)
        adapter = RuleAdapter(model, make(bank.encoder_dim))
    else:
        if read_adapter_info(request.adapter).search is not None:
            prepare_search(model, tokenizer)
        adapter = load_adapter(model, request.adapter)
    if request.confidence_layer is not None:
        adapter.config = replace(adapter.config, confidence_layer=request.confidence_layer)
    return adapter


def _curve(request: Request, adapter: Any) -> dict[str, Any] | None:
    """Return the measurement behind the confidence layer, unless the user overruled it."""
    from ..adapter_info import read_adapter_info

    curve = None if request.adapter is None else read_adapter_info(request.adapter).curve
    layer = adapter.config.confidence_layer
    return curve if curve is not None and curve["confidence_layer"] == layer else None


def _step_text(row: Any, fol: bool) -> str:
    """Return the key of a step's text: ours, else RuleWorld's."""
    keys = set(row["steps"][0]) if row.get("steps") else set()
    ours = "fol" if fol else "nl"
    return ours if ours in keys and "text" not in keys else "text"


def _note(line: str) -> None:
    print(f"dynarule: {line}", file=sys.stderr, flush=True)
