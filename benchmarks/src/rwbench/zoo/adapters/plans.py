"""The trainings of a recipe, one after the other, as `dynarule.training.train` takes them."""

from __future__ import annotations

from dataclasses import fields

from dynarule.training import Recipe, paper_recipe
from ruleworld_data.spec import check_name
from transformers import SchedulerType

from .recipe import AdapterRecipe


def training_plans(recipe: AdapterRecipe, method: str) -> list[tuple[int, Recipe]]:
    """Return the world of each training and how a method is trained there.

    KBLaM has all rules and no retrieval in every stage; it gets the others' pools and steps.

    Raises
    ------
    ValueError
        For a setting that is unknown or impossible, of whichever training, before the first one begins.
    """
    plans = []
    known = ["world", *sorted({field.name for field in fields(Recipe)} - {"method"})]
    for number, (world, changes) in enumerate(recipe.plans(), 1):
        try:
            for name in changes:
                check_name("setting", name, known)
            plan = paper_recipe(method, **{"seed": recipe.seed} | changes)
            check_name("schedule", plan.schedule, [each.value for each in SchedulerType])
        except ValueError as error:
            raise ValueError(f"training {number} of recipe {recipe.name!r}: {error}") from None
        plans.append((world, plan))
    return plans
