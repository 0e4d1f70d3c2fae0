"""``dynarule train``: one stage of a training, from files."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from .._lazy import need
from ..books.questions import read_rows
from .loading import load_model, load_rules
from .shared import DeviceOption, EncoderOption, ModelOption, QuestionsOption, RulesOption, note

FINDING = "retrieval"
"""The stage that trains finding alone."""


def train(
    model: ModelOption,
    rules: RulesOption,
    out: Annotated[Path, typer.Option("--out", help="Checkpoints, and the adapter.", show_default=False)],
    questions: QuestionsOption = None,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="Questions to measure on, in the same format.")
    ] = None,
    stage: Annotated[str, typer.Option("--stage", help="1: all rules; retrieval: finding; 2: top K.")] = "1",
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="Start from it.", show_default="new")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="dynarule, srki or kblam.")] = "dynarule",
    confidence_layer: Annotated[
        int | None, typer.Option("--confidence-layer", min=0, help="0-based.", show_default="the adapter's")
    ] = None,
    encoder: EncoderOption = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value of the recipe, as batch_size=4; a wrong name lists them."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            help="Something beyond the paper, e.g. --add muon:value_rate=6; a wrong name lists them.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the newest checkpoint in --out; begin if there is none."),
    ] = False,
    report_to: Annotated[str, typer.Option("--report-to", help="none, tensorboard, wandb, ...")] = "none",
    device: DeviceOption = None,
) -> None:
    """Train one stage; run stage 1, `dynarule confidence --write`, stage retrieval from it, and stage 2 from that.

    Questions are .jsonl or .parquet rows of question, steps (text, rule_ids) and answers. With --held-out, losses and
    Recall@1 of other questions are measured ten times on the way.

    Example: dynarule train --model MODEL --rules bank --questions train.jsonl --out stage1
    """
    need("accelerate", "train")
    rows = read_rows(questions, ".jsonl or .parquet")
    measured = read_rows(held_out) if held_out else None
    recipe = recipe_of(method, stage, setting or (), add or (), rows)
    if stage != "1" and adapter is None:
        raise ValueError(f"stage {stage} starts from stage 1; give the folder it wrote as --adapter")
    unmixed = stage != FINDING and recipe.mix is None
    if unmixed and not any(pair.startswith("mix=") for pair in setting or ()):
        note("the questions are not of the paper's three families, so all are drawn alike (mix=null)")
    from ..config import DynaRuleConfig
    from ..search_token import begin_as_header, prepare_search
    from ..training import LogLines
    from ..training import train as run

    start = None if adapter is None else DynaRuleConfig.from_pretrained(adapter)
    base, tokenizer = load_model(model, adapter, device)
    like = "" if start is None else start.encoder
    bank = load_rules(rules, encoder, like, base, tokenizer)
    adapted = _adapter(adapter, method, recipe.seed, base, tokenizer, bank.encoder_dim)
    if confidence_layer is not None:
        adapted.config.confidence_layer = confidence_layer
    going: dict[str, Any] = {"held_out": measured, "resume": resume}
    if stage == FINDING:
        from ..plus import train_retrieval

        if adapted.config.search_id is None:
            begin_as_header(base, tokenizer)
        going["report"] = lambda entry: note("  ".join(f"{name} {value:g}" for name, value in entry.items()))
        train_retrieval(base, tokenizer, adapted, rows, bank, recipe, out, **going)
        note(f"wrote {out}: the adapter, README.md (its model card), retrieval.json")
        return
    curve = None if start is None else start.curve
    if curve is not None and curve["confidence_layer"] != adapted.config.confidence_layer:
        curve = None  # the user overruled the measurement
    if recipe.searches:  # after the adapter, whose base may be one row shorter
        prepare_search(base, tokenizer)
    going |= {"curve": curve, "callbacks": [LogLines()], "report_to": report_to}
    run(base, tokenizer, adapted, rows, bank, recipe, out, **going)
    note(f"wrote {out}: the adapter, README.md (its model card), log.json")


def recipe_of(
    method: str, stage: str, settings: Sequence[str], additions: Sequence[str], rows: Sequence[Any]
) -> Any:
    """Return a stage's recipe with ``name=value`` settings, and additions as ``name`` or ``name:setting=value,...``.

    Without a mix of their own, questions that are not of the paper's three families are all drawn alike. A ValueError
    lists the names where one is wrong.
    """
    from ..training import PAPER_MIX, Recipe, families, paper_recipe

    if stage not in ("1", FINDING, "2"):
        raise ValueError(f"--stage must be 1, {FINDING} or 2, got {stage}")
    kind: Any = Recipe
    if stage == FINDING:
        from .. import plus

        kind = plus.RetrievalRecipe
    known = [f.name for f in fields(kind) if f.name != "additions"]
    changes: dict[str, Any] = {}
    for pair in settings:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set {pair}: expected name=value with a name of {known}")
        changes[name] = _value(value)
    if stage == FINDING:
        if additions:
            raise ValueError(f"--add {additions[0]}: the stage {FINDING} has no additions, see --set")
        return kind(**changes)
    changes["additions"] = {}
    for word in additions:
        name, _, rest = word.partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        changes["additions"][name] = {setting: _value(value) for setting, _, value in pairs}
    recipe = paper_recipe(method, int(stage), **changes)
    mixed = {"family", "subtask"} & set(rows[0]) and set(families(rows)) == set(PAPER_MIX)
    return recipe if mixed or "mix" in changes else replace(recipe, mix=None)


def _value(text: str) -> Any:
    """Read a value: JSON, or text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _adapter(folder: Path | None, method: str, seed: int, model: Any, tokenizer: Any, width: int) -> Any:
    """Return a new adapter, or the one to start from."""
    import torch

    from ..adapter import RuleAdapter, load_adapter
    from ..config import dynarule_config, kblam_config, srki_config

    if folder is None:
        make = {"dynarule": dynarule_config, "srki": srki_config, "kblam": kblam_config}[method]
        torch.manual_seed(seed)
        return RuleAdapter(model, make(width))
    return RuleAdapter(load_adapter(model, folder, tokenizer, is_trainable=True))
