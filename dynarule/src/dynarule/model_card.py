"""The README.md beside a trained adapter: what it was trained on and how, what was measured, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from jinja2 import Environment, StrictUndefined

from . import __version__
from .config import DynaRuleConfig
from .training.recipe import Recipe

if TYPE_CHECKING:
    from .plus.retrieval import RetrievalRecipe

TEMPLATE = Path(__file__).with_name("model_card.jinja")
CURVE_ROWS = 12  # of the table of held-out measurements


def is_path(name: str) -> bool:
    """Return whether a base model is named by a path of this machine, which others cannot load."""
    return name.startswith((".", "/")) or (name != "" and Path(name).is_dir())


def model_card(
    config: DynaRuleConfig,
    recipe: Recipe | RetrievalRecipe,
    facts: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
) -> str:
    """Return the card of a saved adapter as Markdown, with the front matter that the Hub reads.

    The facts are what recipe and adapter do not say: ``steps``, and the ``processes`` that took them together; numbers
    of ``questions``, ``held_out`` ones and ``rules``; ``families``, questions of each, or empty; the base's ``dtype``.
    """
    name = config.base_model_name_or_path or ""
    finding = not isinstance(recipe, Recipe)
    measured = [entry for entry in history if ("recall" if finding else "eval_lm_loss") in entry]
    values, said = asdict(recipe), get_type_hints(type(recipe), include_extras=True)
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        version=__version__,
        base=(Path(name).name if is_path(name) else name) or (config.base or {})["model_type"],
        local=is_path(name) or not name,
        config=config,
        recipe=recipe,
        finding=finding,
        facts=facts,
        settings=[(name, json.dumps(values[name]), hint.__metadata__[0]) for name, hint in said.items()],
        trained=[entry for entry in history if "lm_loss" in entry],
        # A long curve is thinned, and keeps its end.
        measured=measured[:: -max(1, -(-len(measured) // CURVE_ROWS))][::-1],
        count=lambda number: f"{number:,}",
    )
    return text.rstrip() + "\n"
