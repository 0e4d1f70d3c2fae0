"""Training of adapters: examples and pools, losses, recipes, and the two stages on transformers' Trainer.

A row is a question with its steps and gold rules; an `Encoder` makes tokens of it, a `Collator` a batch with one pool
of rules around the gold ones; a `RuleModel` returns the loss of equation 5, which `train` minimises as a `Recipe` says:
the paper's settings, and additions that are not the paper's.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "additions": (
        "Addition",
        "Muon",
        "NewWordWeight",
        "OpeningSearch",
        "ReadingLoss",
        "SortedBatches",
        "StepSets",
        "StepVisibility",
    ),
    "data": ("Collator", "Encoder", "target_text"),
    "log": ("LogLines",),
    "losses": ("lm_loss", "stacked_step_loss"),
    "pools": ("RulePools", "TrainingStream", "families"),
    "recipe": ("PAPER_MIX", "Recipe", "paper_recipe", "recipe_file", "recipe_steps"),
    "rule_model": ("RuleModel",),
    "trainer": ("train",),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
