"""Training of adapters: examples and pools, losses, recipes, and the two stages on transformers' Trainer.

A row is a question with its steps and gold rules; an `Encoder` makes tokens of it, a `Collator` a batch with one pool
of rules around the gold ones; a `RuleModel` returns the loss of equation 5, which `train` minimises as a `Recipe` says:
the paper's settings, and additions that are not the paper's.
"""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    data="Collator Encoder target_text",
    losses="lm_loss stacked_step_loss",
    pools="RulePools TrainingStream families",
    recipe="PAPER_MIX Recipe paper_recipe recipe_file recipe_steps",
    rule_model="RuleModel",
    run_folder="LogLines",
    trainer="train",
)
