"""The folder of an adapter's training: whose it is, which stages are finished, and the adapter that comes of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dynarule.training import Recipe, whole_checkpoints
from peft.utils import SAFETENSORS_WEIGHTS_NAME as WEIGHTS_FILE
from ruleworld_data.io import write_whole
from safetensors.torch import load_file, save

from dynarule import DynaRuleConfig, RuleAdapter

from ...models import replaced_folder
from .recipe import PLUS, AdapterRecipe

STARTED = "started.json"
FINISHED = "README.md"
"""What a stage's training writes last."""
MAY_CHANGE = {"name", "stages", "held_out"}
"""What a training may go on with if it differs; stages are compared one by one where they are."""


def claim_folder(out: Path, recipe: AdapterRecipe, method: str, representation: str, resume: bool) -> None:
    """Write down what a folder is for; on resuming, refuse another recipe than that of the start.

    Stages are compared by `read_finished` and `dynarule.training.train`: one that has not begun may change.

    Raises
    ------
    FileExistsError
        If it holds a training, which is not to be resumed.
    ValueError
        If it holds another one.
    """
    if any(out.glob("*/checkpoint-*")) and not resume:
        raise FileExistsError(f"{out} holds a training already; go on with --resume, or give another --out")
    path, begun = out / STARTED, any(map(_begun, out.iterdir()))
    settings = {"method": method, "representation": representation}
    now = json.loads(json.dumps(asdict(recipe) | settings))
    if begun and path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        _refuse_changes(out, out, before, now, sorted(now.keys() - MAY_CHANGE))
    write_whole(path, json.dumps(now, indent=1) + "\n")


def _begun(stage: Path) -> bool:
    """Return whether there is something to go on from: a kill while the first checkpoint is saved leaves nothing."""
    return bool(whole_checkpoints(stage)) or (stage / FINISHED).is_file()


def read_finished(folder: Path, recipe: Recipe, adapter: RuleAdapter, encoder: str) -> None:
    """Load what a finished stage left: the adapter, and the row of ``<search>`` into the model.

    Raises
    ------
    ValueError
        If it was trained by another recipe, or on embeddings of another encoder (a fingerprint).
    """
    before = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    now = json.loads(json.dumps(recipe.to_dict()))
    _refuse_changes(folder, folder.parent, before, now, now.keys() & before.keys())
    trained_on = DynaRuleConfig.from_pretrained(folder).encoder
    if trained_on != encoder:
        raise ValueError(
            f"{folder} was trained on rules encoded by {trained_on!r}, now they are by {encoder!r}; put the base of "
            f"that training back, or delete {folder.parent} to begin anew"
        )
    adapter.load(folder)


def _refuse_changes(
    folder: Path, out: Path, before: Mapping[str, Any], now: Mapping[str, Any], names: Iterable[str]
) -> None:
    for name in names:
        if before.get(name) != now[name]:
            raise ValueError(
                f"{folder} was trained with {name} {before.get(name)!r}, now it is {now[name]!r}; give another --out, "
                f"or delete {out} to begin anew"
            )


def publish(trained: Path, to: Path, recipe: AdapterRecipe, method: str) -> Path:
    """Copy what serving needs of the last stage, without its checkpoints; its card tells of all stages."""
    with replaced_folder(to) as new:
        for path in sorted(trained.iterdir()):
            if path.is_file() and path.name[0] != ".":
                shutil.copy2(path, new / path.name)
        _halve(new / WEIGHTS_FILE)
        notes = [] if method == PLUS else [_stages(recipe, method)]
        if recipe.opening and method == "dynarule":
            notes.append(
                "An opening `<search>` looks for the first step's rules; the prompt before it looks for those of all "
                "steps, and counts in the Recall@1 below as one step more, which no answer depends on."
            )
        card = (new / "README.md").read_text(encoding="utf-8")
        heading = "## Training\n"
        card = card.replace(heading, "\n".join([heading, *(note + "\n" for note in notes)]), 1)
        (new / "README.md").write_text(card, encoding="utf-8")
        (new / "adapters.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n", encoding="utf-8")
    return to


def _halve(weights: Path) -> None:
    """Store weights in fp16, half as large; loading refuses a number that fp16 does not hold."""
    tensors = {name: value.half() for name, value in load_file(weights).items()}
    write_whole(weights, save(tensors, {"format": "pt"}))


def _stages(recipe: AdapterRecipe, method: str) -> str:
    """Return the trainings that came before the last one, which the tables of the card are about."""
    trainings = recipe.trainings(method)
    lines = []
    for number, plan in enumerate(trainings, 1):
        assert isinstance(plan, Recipe)
        stage = "" if method == "kblam" else f"stage {plan.stage}: "  # KBLaM has one stage
        steps = f"{plan.max_steps:,} steps" if plan.max_steps else f"{plan.epochs} epochs"
        low, high = (plan.pool_size, plan.pool_size) if isinstance(plan.pool_size, int) else plan.pool_size
        lines.append(
            f"{number}. {stage}{steps} of {plan.batch_size * plan.accumulation} questions, "
            f"{low:,} to {high:,} rules"
        )
    title = f"The last of {len(trainings)} trainings (recipe `{recipe.name}`), each from what the one before left:"
    return "\n\n".join([title, "\n".join(lines)])
