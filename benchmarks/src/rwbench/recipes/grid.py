"""A table as a grid: its rows (methods) on every pool size and representation.

Pools of all sizes are nested in the largest: the smaller ones take their distractors from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..methods import Method
from ..spec import REPRESENTATIONS, RunSpec
from . import Options, RunRecipe, recipe

SCOPES = {100: "question", 500: "question", 1_000: "fold", 2_000: "fold", 5_000: "batch", 10_000: "batch"}
"""Pool size -> who shares a pool; a small one holds the gold rules of one question only."""

MAIN_SIZES = (100, 1_000, 10_000)
ALL_SIZES = tuple(SCOPES)

Rows = Callable[[Options, str, int], Sequence[Method]]
"""(options, representation, pool size) -> the methods to compare there."""


def grid(
    name: str,
    sizes: Sequence[int] = MAIN_SIZES,
    representations: Sequence[str] = REPRESENTATIONS,
    *,
    subtasks: Sequence[str] | None = None,
    held_out: bool = False,
    help: str | None = None,
) -> Callable[[Rows], RunRecipe]:
    """Register the recipe of a table whose rows the decorated function gives; see `runs`.

    With ``held_out`` the grid is asked twice: on the split of the options and on the held-out rules. ``help`` replaces
    the function's docstring.
    """

    def register(rows: Rows) -> RunRecipe:
        def function(options: Options) -> list[RunSpec]:
            splits = (options.split, "heldout") if held_out else (options.split,)
            asked = [replace(options, split=split) for split in splits]
            return [spec for each in asked for spec in runs(each, sizes, rows, representations, subtasks)]

        function.__doc__ = help or rows.__doc__
        # Its origin, which tells two recipes of one name: the rows, and what is asked of them.
        asked = (*sizes, *representations, *(subtasks or ()), *["held out"] * held_out)
        function.__module__ = rows.__module__
        function.__qualname__ = f"{rows.__qualname__} ({', '.join(map(str, asked))})"
        return recipe(name)(function)

    return register


def runs(
    options: Options,
    sizes: Iterable[int],
    rows: Rows,
    representations: Sequence[str] = REPRESENTATIONS,
    subtasks: Sequence[str] | None = None,
) -> list[RunSpec]:
    """Return a run for every size, representation and method.

    Parameters
    ----------
    options : Options
    sizes : iterable of int
        Pool sizes; those above the world's number of rules become one run with all rules.
    rows : callable
    representations : sequence of str
    subtasks : sequence of str, optional
        None: all.

    Notes
    -----
    Runs of one model follow each other, so it is loaded once; the largest pool comes first: it holds the rules of the
    others, so an encoder reads everything in one go.
    """
    everything = options.num_rules
    largest = min(max(SCOPES), everything)
    wanted = {min(size, everything): SCOPES[size] for size in sorted(sizes)}
    specs = [
        options.spec(method, representation, size, scope, within=largest if size < largest else None)
        for size, scope in sorted(wanted.items(), reverse=True)
        for representation in representations
        for method in rows(options, representation, size)
    ]
    if subtasks is not None:
        specs = [replace(spec, subtasks=tuple(subtasks)) for spec in specs]
    # Two sizes may have become one; a stable sort keeps the rest of the order.
    unique = list({spec.run_id: spec for spec in specs}.values())
    first = {name: place for place, name in reversed(list(enumerate(_model_of(spec) for spec in unique)))}
    return sorted(unique, key=lambda spec: first[_model_of(spec)])


def _model_of(spec: RunSpec) -> str:
    return f"{spec.method.get('model')} {spec.method.get('adapter', '')}"
