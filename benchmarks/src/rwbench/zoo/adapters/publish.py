"""A trained adapter as a folder to serve: what the last training left, with a card that tells of all of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from dynarule import DynaRuleConfig

from .plans import training_plans
from .recipe import AdapterRecipe


def _earlier(recipe: AdapterRecipe, method: str) -> str:
    """Return the trainings that came before the last one, which the tables of the card are about."""
    plans = training_plans(recipe, method)
    lines = [
        f"The last of {len(plans)} trainings (recipe `{recipe.name}`), each from what the one before left:"
    ]
    for number, (world, plan) in enumerate(plans, 1):
        steps = f"{plan.max_steps:,} steps" if plan.max_steps else f"{plan.epochs} epochs"
        name = "" if method == "kblam" else f"stage {plan.stage}: "  # KBLaM has one stage
        low, high = (plan.pool_size, plan.pool_size) if isinstance(plan.pool_size, int) else plan.pool_size
        lines.append(
            f"{number}. {name}{steps} of {plan.batch_size * plan.accumulation} questions, "
            f"{low:,} to {high:,} rules" + (f" of world {world}" if world != recipe.seed else "")
        )
    if world != recipe.seed:
        lines[0] = f"Questions, rules and results on this card are those of world {world}. {lines[0]}"
    return "\n\n".join([lines[0], "\n".join(lines[1:])])


def publish(out: Path, trained: Path, recipe: AdapterRecipe, method: str) -> Path:
    """Copy what serving needs, and nothing of the checkpoints; say what the last stage's card cannot know."""
    new, final = out / "adapter.new", out / "adapter"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in sorted(trained.iterdir()):
        if path.is_file():
            shutil.copy2(path, new / path.name)
    config = DynaRuleConfig.from_pretrained(new)
    lead = _earlier(recipe, method)
    if recipe.serve_top_k is not None and config.top_k is not None:
        config.top_k = recipe.serve_top_k
        lead += f"\n\nAnswers read {recipe.serve_top_k} rules per layer, training {recipe.top_k}."
    if recipe.opening and method == "dynarule":
        lead += (
            "\n\nAn opening `<search>` looks for the first step's rules; the prompt before it looks for those of all "
            "steps, and counts in the Recall@1 below as one step more, which no answer depends on."
        )
    config.save_pretrained(new)
    card = (new / "README.md").read_text(encoding="utf-8")
    said = card.replace("## Training\n", f"## Training\n\n{lead}\n", 1)
    (new / "README.md").write_text(said, encoding="utf-8")
    (new / "adapters.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    new.rename(final)
    return final
