"""Recipes: functions that return lists of runs. Every table of a paper is one name.

A recipe is a Python function that ``@recipe`` registers by name: from `Options` to `RunSpec`s, or, with pool sizes,
from a `Cell` to the methods to compare there. A new file in this folder is all that a new recipe needs; derive one by
calling another and changing fields with `dataclasses.replace`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ruleworld_data.spec import WorldSpec, check_name

from ..backends import Backend
from ..backends.local import Local
from ..methods import Method
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
    """What a user may change about any recipe."""

    source: DataSource  # names the world: scale, seed, generator version, dials
    split: str = "mini"  # of the questions
    limit: int | None = None  # questions per sub-task, of every fold in turn; None: all
    models: tuple[Backend, ...] = ()  # a recipe makes its runs for each of them; empty: the shipped ``tiny``
    encoder: str = "minilm"  # of dense retrieval; see `rwbench.retrievers.dense`
    sizes: tuple[int, ...] = ()  # of pools, in the place of the recipe's, of `SCOPES`; empty: the recipe's
    forms: tuple[str, ...] = REPRESENTATIONS  # of the rules

    @property
    def num_rules(self) -> int:
        """Rules of the world that the split asks about."""
        split = "heldout" if self.split == "heldout" else "train"
        version, dials = self.source.version, self.source.dials
        return WorldSpec(self.source.scale, split, version=version, dials=dials).num_rows("rules")

    def spec(
        self,
        method: Method | dict[str, Any],
        representation: str,
        size: int,
        scope: str,
        within: int | None = None,
    ) -> RunSpec:
        """Return the run of a method, or of what it is as a dict, on one representation and pool setting."""
        return RunSpec(
            method=method if isinstance(method, dict) else method.to_dict(),
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


class Cell(NamedTuple):
    """Where methods are compared: on one model, with rules in one form, in pools of one size."""

    model: Backend
    form: str
    size: int
    encoder: str  # of dense retrieval

    def memory(self, *kinds: Any, **changes: Any) -> list[Any]:
        """Return methods of rule memory, which only a model that is a folder can have."""
        is_folder = isinstance(self.model, Local)
        return [kind.of(self.model, self.form, **changes) for kind in kinds] if is_folder else []


Rows = Callable[[Cell], Sequence[Method]]
"""From a cell to the methods to compare there."""
Pool = tuple[int, str, int | None]
"""Size, scope, and the size of the pool that it lies in."""


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
        return runs(options, nested_pools(options, self.sizes), function) if self.sizes else function(options)


recipes = Registry[RunRecipe]("recipe", __name__)


def recipe(
    name: str, sizes: Sequence[int] = (), source: Callable[..., DataSource] | None = None
) -> Callable[[Any], RunRecipe]:
    """Register the decorated function as the recipe ``name`` (see `RunRecipe`); ``--sizes`` replaces ``sizes``."""

    def register(function: Any) -> RunRecipe:
        recipes.add(name, made := RunRecipe(name, function, tuple(sizes), source))
        return made

    return register


def nested_pools(options: Options, sizes: Iterable[int]) -> list[Pool]:
    """Return pools of these sizes, or of the options' own, the largest first.

    The smaller ones take their distractors from the largest. Sizes above the world's number of rules become one pool
    with all rules.
    """
    everything = options.num_rules
    most = min(max(SCOPES), everything)
    scopes = {min(size, everything): SCOPES[size] for size in sorted(options.sizes or sizes)}
    return [(size, scopes[size], most if size < most else None) for size in sorted(scopes, reverse=True)]


def runs(options: Options, pools: Iterable[Pool], rows: Rows) -> list[RunSpec]:
    """Return a run for every pool, representation, model and method.

    Runs of one model follow each other, so it is loaded once; the largest pool comes first, so an encoder reads
    everything in one go.
    """
    specs = [
        options.spec(method, form, size, scope, within)
        for size, scope, within in pools
        for form in options.forms
        for model in options.models or (Local.of(DEFAULT_MODEL, options.source.version),)
        for method in rows(Cell(model, form, size, options.encoder))
    ]
    unique = {spec.run_id: spec for spec in specs}  # a row may ask no model, or be the same at two sizes
    models = list(dict.fromkeys(map(_model_of, unique.values())))
    return sorted(unique.values(), key=lambda spec: models.index(_model_of(spec)))


def _model_of(spec: RunSpec) -> str:
    return f"{spec.method.get('model')} {spec.method.get('adapter', '')}"
