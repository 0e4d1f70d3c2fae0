"""Hyper-parameters of training: the paper's, by method and stage, and what is added to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

Method = Literal["dynarule", "srki", "kblam"]
Embedding = Literal["none", "row", "full"]
PoolQueries = Literal["full", "prompt"]

PAPER_MIX = {"single_rule": 0.3, "multi_rule": 0.4, "multi_hop": 0.3}
"""Share of each family in every batch."""


@dataclass(frozen=True)
class Muon:
    """Muon for matrices, AdamW for vectors: on a small base, rules are found in fewer steps than with AdamW."""

    value_rate: float = field(default=1.0, metadata={"help": "of value projections, times the learning rate"})
    vector_rate: float = field(default=1.0, metadata={"help": "of biases and rows, times the learning rate"})

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class SortedBatches:
    """Batches of an optimizer step hold questions of like length, which saves padding."""


Addition = Muon | SortedBatches
ADDITIONS: dict[str, type[Muon] | type[SortedBatches]] = {"muon": Muon, "sorted_batches": SortedBatches}
"""What the paper does not do, by its name in files and on the command line."""
REMOVED = (("muon", "whiten", False),)
"""Settings that are gone, at the value that meant nothing: recipes of older adapters hold them."""
A = TypeVar("A", Muon, SortedBatches)


@dataclass(frozen=True)
class Recipe:
    """How one stage is trained: the paper's settings, and `additions` that are not.

    The defaults are the paper's second stage of DynaRule; see `paper_recipe` for the others.

    Examples
    --------
    >>> Recipe(max_steps=600, additions=(Muon(value_rate=6.0), SortedBatches()))  # doctest: +SKIP
    """

    method: Method = field(default="dynarule", metadata={"help": "whose retrieval loss and target text"})
    stage: int = field(
        default=2, metadata={"help": "1: all rules, language model loss only; 2: top K, retrieval loss"}
    )
    pool_size: int | tuple[int, int] = field(default=1000, metadata={"help": "M, or a range drawn per batch"})
    hard_share: float = field(default=0.1, metadata={"help": "share of the pool with a gold rule's premise"})
    pool_queries: PoolQueries = field(
        default="full", metadata={"help": "tokens whose mean query chooses candidates (equation 3)"}
    )
    full_dot: bool = field(
        default=False, metadata={"help": "dot product over the full width, not mean of heads (equation 4)"}
    )
    temperature: float = field(default=0.05, metadata={"help": "of the retrieval loss (equation 5)"})
    retrieval_weight: float = field(default=1.0, metadata={"help": "weight of the retrieval loss"})
    embedding: Embedding = field(
        default="row", metadata={"help": "train the row of <search>, or the whole matrix"}
    )
    learning_rate: float = field(default=1e-4, metadata={"help": "peak"})
    schedule: str = field(default="cosine", metadata={"help": "a scheduler of transformers"})
    warmup_ratio: float = field(default=0.01, metadata={"help": "of the steps"})
    weight_decay: float = field(default=1e-4, metadata={"help": "of matrices of the adapter"})
    max_grad_norm: float = field(default=1.0, metadata={"help": "clipping"})
    batch_size: int = field(default=10, metadata={"help": "per process"})
    accumulation: int = field(default=5, metadata={"help": "batches per step"})
    epochs: float = field(
        default=5.0, metadata={"help": "passes over the questions (SR-KI's; the paper is silent)"}
    )
    max_steps: int | None = field(default=None, metadata={"help": "instead of epochs"})
    mix: Mapping[str, float] | None = field(
        default_factory=lambda: dict(PAPER_MIX), metadata={"help": "share of each family in a batch"}
    )
    seed: int = field(default=0, metadata={"help": "of order, pools and initial weights"})
    additions: tuple[Addition, ...] = field(default=(), metadata={"help": "what goes beyond the paper"})

    def __post_init__(self) -> None:
        for name, choices in (
            ("method", get_args(Method)),
            ("stage", (1, 2)),
            ("embedding", get_args(Embedding)),
            ("pool_queries", get_args(PoolQueries)),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {getattr(self, name)!r}")
        zero = {"hard_share", "retrieval_weight", "warmup_ratio", "weight_decay", "max_grad_norm", "seed"}
        check_numbers(self, zero)
        size: Any = self.pool_size
        sizes = tuple(size) if isinstance(size, tuple | list) else (size, size)
        if len(sizes) != 2 or not all(isinstance(n, int) for n in sizes) or not 1 <= sizes[0] <= sizes[1]:
            raise ValueError(f"pool_size must be a positive number or a range (low, high), got {size!r}")
        object.__setattr__(self, "pool_size", size if isinstance(size, int) else sizes)
        object.__setattr__(self, "additions", _read_additions(self.additions))

    @property
    def retrieves(self) -> bool:
        """Whether there is a retrieval loss."""
        return self.stage == 2 and self.method != "kblam" and self.retrieval_weight > 0

    @property
    def searches(self) -> bool:
        """Whether the target text has ``<search>`` between steps."""
        return self.stage == 2 and self.method == "dynarule"

    def added(self, kind: type[A]) -> A | None:
        """Return the addition of a kind, None where there is none."""
        return next((addition for addition in self.additions if isinstance(addition, kind)), None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; ``Recipe(**values)`` reads them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["mix"] = None if self.mix is None else dict(self.mix)
        names = {kind: name for name, kind in ADDITIONS.items()}
        return values | {"additions": {names[type(added)]: asdict(added) for added in self.additions}}


def check_numbers(recipe: Any, may_be_zero: Collection[str] = ()) -> None:
    """Raise ValueError if a numeric field of a recipe is not a finite number of its type, positive or 0 or more."""
    for f in fields(recipe):
        value, kind = getattr(recipe, f.name), str(f.type).removesuffix(" | None")
        if kind not in ("int", "float") or (value is None and f.type != kind):
            continue
        least = 0 if f.name in may_be_zero else math.ulp(0)
        is_number = type(value) is int or (type(value) is float and kind == "float")
        if not (
            is_number and math.isfinite(value) and value >= least
        ):  # a NaN would be trained with to the end
            wanted = "0 or more" if f.name in may_be_zero else "positive"
            whole = " and whole" if kind == "int" and type(value) is float else ""
            raise ValueError(f"{f.name} must be {wanted}{whole}, got {value!r}")


def _read_additions(given: Sequence[Addition] | Mapping[str, Mapping[str, Any]]) -> tuple[Addition, ...]:
    """Return additions in the order of `ADDITIONS`, from objects or from the tables of a file."""
    if isinstance(given, Mapping):
        given = [_read_addition(name, settings) for name, settings in given.items()]
    kinds = [type(addition) for addition in given]
    if len(set(kinds)) != len(kinds):
        raise ValueError(f"every addition can be there once, got {[kind.__name__ for kind in kinds]}")
    return tuple(sorted(given, key=lambda addition: list(ADDITIONS.values()).index(type(addition))))


def _read_addition(name: str, settings: Mapping[str, Any]) -> Addition:
    if name not in ADDITIONS:
        raise ValueError(f"unknown addition {name!r}; there are {list(ADDITIONS)}")
    known = [f.name for f in fields(ADDITIONS[name])]
    settings = {key: value for key, value in settings.items() if (name, key, value) not in REMOVED}
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ValueError(f"the addition {name} has no setting {unknown[0]!r}; it has {known}")
    kind: Any = ADDITIONS[name]
    return cast(Addition, kind(**settings))


def paper_recipe(method: Method = "dynarule", stage: int = 2, **changes: Any) -> Recipe:
    """Return the paper's hyper-parameters; baselines are trained as DynaRule is, with losses of their own.

    Stage 1 injects 100 rules and attends to all of them, stage 2 starts from it with 1,000 of which 100 are kept.
    KBLaM has one stage: rules without retrieval.
    """
    settings: dict[str, Any] = {"method": method, "stage": 1 if method == "kblam" else stage}
    if settings["stage"] == 1:
        settings["pool_size"] = 100
    if settings["stage"] == 1 or method != "dynarule":
        settings["embedding"] = "none"
    return Recipe(**(settings | changes))


def recipe_steps(recipe: Recipe, questions: int, processes: int = 1) -> int:
    """Return how many optimizer steps a recipe takes over a number of questions."""
    per_step = recipe.batch_size * recipe.accumulation * processes
    return recipe.max_steps or math.ceil(questions * recipe.epochs / per_step)


def recipe_file(name: str = "") -> Path:
    """Return a configuration file that comes with the package.

    Parameters
    ----------
    name : {"deepspeed_zero2_offload.json", "accelerate_zero2_offload.yaml"}
        DeepSpeed ZeRO-2 with optimizer offload as in the paper; the same through accelerate.
    """
    folder = Path(__file__).parent / "recipes"
    if not (folder / name).is_file():
        raise FileNotFoundError(
            f"no recipe file {name!r}; there are {sorted(p.name for p in folder.iterdir())}"
        )
    return folder / name
