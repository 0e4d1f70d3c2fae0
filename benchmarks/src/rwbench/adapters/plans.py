"""The trainings of a recipe, one after the other, as `dynarule.train` takes them."""

from __future__ import annotations

from dataclasses import fields

from dynarule.recipe import Recipe, paper_recipe

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
    known = sorted({field.name for field in fields(Recipe)} - {"method"})
    for number, (world, changes) in enumerate(recipe.plans(), 1):
        where = f"training {number} of recipe {recipe.name!r}"
        for name in changes.keys() - {*known}:
            raise ValueError(f"{where}: no setting {name!r}; there are world, {', '.join(known)}")
        try:
            plan = paper_recipe(method, **{"seed": recipe.seed} | changes)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        plans.append((world, plan))
    return plans
