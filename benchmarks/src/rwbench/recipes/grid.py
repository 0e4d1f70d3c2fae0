"""A table as a grid: its rows (methods) on every pool size and representation.

Pools of all sizes are nested in the largest: the smaller ones take their distractors from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..methods import Method
from ..spec import RunSpec
from . import SCOPES, Options, RunRecipe, recipe

MAIN_SIZES = (100, 1_000, 10_000)
ALL_SIZES = tuple(SCOPES)

Rows = Callable[[Options, str, int], Sequence[Method]]
"""(options, representation, pool size) -> the methods to compare there."""


def grid(name: str, sizes: Sequence[int] = MAIN_SIZES, help: str = "") -> Callable[[Rows], RunRecipe]:
    """Register the recipe of a table whose rows the decorated function gives; see `runs`.

    ``sizes`` are those without ``--sizes``; ``help`` replaces the function's docstring.
    """

    def register(rows: Rows) -> RunRecipe:
        def function(options: Options) -> list[RunSpec]:
            return runs(options, sizes, rows)

        function.__doc__ = help or rows.__doc__
        # where it was written, which tells two recipes of one name
        function.__module__, function.__qualname__ = rows.__module__, f"{rows.__qualname__} {tuple(sizes)}"
        return recipe(name)(function)

    return register


def runs(options: Options, sizes: Iterable[int], rows: Rows) -> list[RunSpec]:
    """Return a run for every size, representation and method.

    Parameters
    ----------
    options : Options
        Its sizes, where it has any, take the place of ``sizes``.
    sizes : iterable of int
        Pool sizes; those above the world's number of rules become one run with all rules.
    rows : callable

    Notes
    -----
    Runs of one model follow each other, so it is loaded once; the largest pool comes first: it holds the rules of the
    others, so an encoder reads everything in one go.
    """
    everything = options.num_rules
    largest = min(max(SCOPES), everything)
    wanted = {min(size, everything): SCOPES[size] for size in sorted(options.sizes or sizes)}
    specs = [
        options.spec(method, form, size, scope, within=largest if size < largest else None)
        for size, scope in sorted(wanted.items(), reverse=True)
        for form in options.forms
        for method in rows(options, form, size)
    ]
    # two sizes may have become one; a stable sort keeps the rest of the order
    unique = list({spec.run_id: spec for spec in specs}.values())
    first = {name: place for place, name in reversed(list(enumerate(_model_of(spec) for spec in unique)))}
    return sorted(unique, key=lambda spec: first[_model_of(spec)])


def _model_of(spec: RunSpec) -> str:
    return f"{spec.method.get('model')} {spec.method.get('adapter', '')}"
