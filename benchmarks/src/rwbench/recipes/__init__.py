"""Recipes: functions that return lists of runs. Every table of a paper is one name.

A recipe is a Python function that ``@recipe`` registers by name: from `Options` to `RunSpec`s, or, with pool sizes, to
the rows of a table (methods) at each size and form. A new file in this folder is all that a new recipe needs; derive
one by calling another and changing fields with `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ruleworld_data.spec import check_name, num_rows

from ..backends import Backend
from ..backends.local import Local
from ..methods import Method
from ..models import shipped
from ..registry import Registry
from ..run.data import DataSource
from ..spec import REPRESENTATIONS, RunSpec

DEFAULT_MODEL = "tiny"

SCOPES = {100: "question", 500: "question", 1_000: "fold", 2_000: "fold", 5_000: "batch", 10_000: "batch"}
"""Pool size -> who shares a pool; a small one holds the gold rules of one question only."""
MAIN_SIZES = (100, 1_000, 10_000)
ALL_SIZES = tuple(SCOPES)


@dataclass(frozen=True)
class Options:
    """What a user may change about any recipe; a ValueError if no recipe has such a size or form.

    Attributes
    ----------
    source : DataSource
        Names the world: scale, seed, generator version, dials.
    split : str
        Question split.
    limit : int or None
        Questions per sub-task, of every fold in turn; None: all.
    models : tuple of Backend
        Language models; a recipe makes its runs for each of them.
    encoder : str
        Sentence encoder of dense retrieval; see `rwbench.retrievers.dense`.
    sizes : tuple of int
        Pool sizes in the place of the recipe's; empty: the recipe's.
    forms : tuple of str
        Representations of the rules.
    """

    source: DataSource
    split: str = "mini"
    limit: int | None = None
    models: tuple[Backend, ...] = ()
    encoder: str = "minilm"
    sizes: tuple[int, ...] = ()
    forms: tuple[str, ...] = REPRESENTATIONS

    def __post_init__(self) -> None:
        for size in self.sizes:
            check_name("pool size", str(size), tuple(map(str, ALL_SIZES)))
        for form in self.forms:
            check_name("form", form, REPRESENTATIONS)

    @property
    def all_models(self) -> tuple[Backend, ...]:
        """The models of a recipe that needs one: those given, else the shipped ``tiny``; a ValueError without both."""
        if self.models:
            return self.models
        if DEFAULT_MODEL not in shipped():
            raise ValueError(
                "this recipe asks a language model; type --model FOLDER, or --model NAME --endpoint http://host:port/v1"
            )
        return (Local.of(DEFAULT_MODEL, self.source.version),)

    @property
    def local_models(self) -> tuple[Local, ...]:
        """Those models that are folders, which rules can be put into."""
        return tuple(model for model in self.all_models if isinstance(model, Local))

    @property
    def num_rules(self) -> int:
        """Rules of the world that the split asks about."""
        split = "heldout" if self.split == "heldout" else "train"
        version, dials = self.source.version, self.source.dials
        return num_rows("rules", split, self.source.scale, version=version, dials=dials)

    def spec(
        self, method: Method, representation: str, size: int, scope: str, within: int | None = None
    ) -> RunSpec:
        """Return the run of a method on one representation and pool setting under these options."""
        return RunSpec(
            method=method.to_dict(),
            representation=representation,
            pool_size=size,
            pool_scope=scope,
            pool_within=within,
            data=self.source.data,
            scale=self.source.scale,
            world_seed=self.source.seed,
            dials=str(self.source.dials) or None,
            subtasks=self.source.subtasks,
            split=self.split,
            limit=self.limit,
        )


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read pool sizes as a user types them: "100,1000", "all" or nothing, which leaves them to the recipe."""
    known = tuple(map(str, ALL_SIZES))
    parts = known if text == "all" else filter(None, text.split(","))
    return tuple(int(check_name("pool size", part, known)) for part in parts)


Rows = Callable[[Options, str, int], Sequence[Method]]
"""(options, representation, pool size) -> the methods to compare there."""


@dataclass(frozen=True)
class RunRecipe:
    """A recipe by the name that users type; a slash groups names ("paper/table2")."""

    name: str
    function: Callable[[Options], list[RunSpec]] | Rows
    """From options to runs; with pool sizes, `Rows`."""
    sizes: tuple[int, ...] = ()
    source: Callable[..., DataSource] | None = None
    """What its runs are about, where that is no world that a user can choose; of recipe ``book``, given a folder."""

    @property
    def help(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def __call__(self, options: Options) -> list[RunSpec]:
        """Return the runs of the recipe."""
        function: Any = self.function
        return runs(options, self.sizes, function) if self.sizes else function(options)


recipes = Registry[RunRecipe]("recipe", __name__)


def recipe(
    name: str, sizes: Sequence[int] = (), source: Callable[..., DataSource] | None = None
) -> Callable[[Any], RunRecipe]:
    """Register the decorated function as the recipe ``name`` (see `RunRecipe`); ``--sizes`` replaces ``sizes``."""

    def register(function: Any) -> RunRecipe:
        recipes.add(name, made := RunRecipe(name, function, tuple(sizes), source))
        return made

    return register


def runs(options: Options, sizes: Iterable[int], rows: Rows) -> list[RunSpec]:
    """Return a run for every size (the options' before ``sizes``), representation and method.

    Pools are nested: the smaller ones take their distractors from the largest. Sizes above the world's number of rules
    become one run with all rules. Runs of one model follow each other, so it is loaded once; the largest pool comes
    first, so an encoder reads everything in one go.
    """
    everything = options.num_rules
    largest = min(max(SCOPES), everything)
    scopes = {min(size, everything): SCOPES[size] for size in sorted(options.sizes or sizes)}
    specs = [
        options.spec(method, form, size, scope, within=largest if size < largest else None)
        for size, scope in sorted(scopes.items(), reverse=True)
        for form in options.forms
        for method in rows(options, form, size)
    ]
    unique = {spec.run_id: spec for spec in specs}  # a row may have the same method at two sizes
    models = list(dict.fromkeys(map(_model_of, unique.values())))
    return sorted(unique.values(), key=lambda spec: models.index(_model_of(spec)))


def _model_of(spec: RunSpec) -> str:
    return f"{spec.method.get('model')} {spec.method.get('adapter', '')}"
