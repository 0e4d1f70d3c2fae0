"""Hyper-parameters of training: the paper's, by method and stage, and what is added to them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from ..base_model import check_fields, check_number

Method = Literal["dynarule", "srki", "kblam"]
PoolQueries = Literal["full", "prompt"]

PAPER_MIX = {"single_rule": 0.3, "multi_rule": 0.4, "multi_hop": 0.3}
"""Share of each family in every batch."""
ADDITIONS: dict[str, dict[str, float]] = {
    "muon": {"value_rate": 1.0},
    "sorted_batches": {},
    "steps": {"beside": 0.0, "from": 3.0, "to": 8.0, "spread": 0.0, "ahead": 0.0},
    "whiten": {},
}
"""What the paper does not do, with the defaults of its settings.

``muon``: Muon for matrices, AdamW for vectors; ``value_rate`` is of value projections, times the learning rate. On a
small base, rules are found in fewer steps than with AdamW. ``sorted_batches``: batches of an optimizer step hold
questions of like length, which saves padding. ``steps``: in stage 1 each step reads its own gold rules, as a search
leaves them, with some others ``beside`` and in a share of cases, ``ahead``, later steps' rules, as a plan has them. All
of these have attention scores lower by ``from`` to ``to``, and the step's own, but for one, by up to ``spread``.
What finds stays as it is. ``whiten``: projections learn for embeddings that vary alike in all directions, see
`dynarule.training.optimizers`; with AdamW at 3e-2 a small base reads after a tenth of the questions.
"""


@dataclass(frozen=True)
class Recipe:
    """How one stage is trained: the paper's settings, and `ADDITIONS` that are not.

    ``Recipe(**values)`` reads what ``dataclasses.asdict`` makes of one, through JSON as well.

    The defaults are the paper's second stage of DynaRule; see `paper_recipe` for the others.

    Examples
    --------
    >>> Recipe(max_steps=600, additions={"muon": {"value_rate": 6.0}})  # doctest: +SKIP
    """

    method: Annotated[Method, "whose retrieval loss and target text"] = "dynarule"
    stage: Annotated[Literal[1, 2], "1: all rules, language model loss only; 2: top K, retrieval loss"] = 2
    pool_size: Annotated[int | tuple[int, int], "M, or a range drawn per batch"] = 1000
    hard_share: Annotated[float, "share of the pool with a gold rule's premise"] = 0.1
    pool_queries: Annotated[PoolQueries, "tokens whose mean query chooses candidates (equation 3)"] = "full"
    temperature: Annotated[float, "of the retrieval loss (equation 5)"] = 0.05
    retrieval_weight: Annotated[float, "weight of the retrieval loss"] = 1.0
    learning_rate: Annotated[float, "peak"] = 1e-4
    schedule: Annotated[str, "a scheduler of transformers"] = "cosine"
    warmup_ratio: Annotated[float, "of the steps"] = 0.01
    weight_decay: Annotated[float, "of matrices of the adapter"] = 1e-4
    max_grad_norm: Annotated[float, "clipping"] = 1.0
    batch_size: Annotated[int, "per process"] = 10
    accumulation: Annotated[int, "batches per step"] = 5
    epochs: Annotated[float, "passes over the questions (SR-KI's; the paper is silent)"] = 5.0
    max_steps: Annotated[int | None, "instead of epochs"] = None
    mix: Annotated[Mapping[str, float] | None, "share of each family in a batch"] = field(
        default_factory=lambda: dict(PAPER_MIX)
    )
    seed: Annotated[int, "of order, pools and initial weights"] = 0
    additions: Annotated[Mapping[str, Mapping[str, float]], "what goes beyond the paper"] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        size: Any = self.pool_size
        sizes = tuple(size) if isinstance(size, tuple | list) else (size, size)
        if len(sizes) != 2 or not all(type(n) is int for n in sizes) or not 1 <= sizes[0] <= sizes[1]:
            raise ValueError(f"pool_size must be a positive number or a range (low, high), got {size!r:.60}")
        object.__setattr__(self, "pool_size", size if isinstance(size, int) else sizes)
        zero = {"hard_share", "retrieval_weight", "warmup_ratio", "weight_decay", "max_grad_norm", "seed"}
        check_fields(self, zero)
        object.__setattr__(self, "additions", _with_defaults(self.additions))

    @property
    def retrieves(self) -> bool:
        """Whether there is a retrieval loss."""
        return self.stage == 2 and self.method != "kblam" and self.retrieval_weight > 0

    @property
    def steps(self) -> Mapping[str, float] | None:
        """The addition ``steps``, which counts in stage 1; None without it."""
        return self.additions.get("steps") if self.stage == 1 else None

    @property
    def searches(self) -> bool:
        """Whether the target text has ``<search>`` in its steps."""
        return self.method == "dynarule" and (self.stage == 2 or self.steps is not None)


def _with_defaults(additions: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return additions with all their settings."""
    for name, settings in additions.items():
        if name not in ADDITIONS:
            raise ValueError(f"unknown addition {name!r}; there are {list(ADDITIONS)}")
        for setting, value in settings.items():
            if setting not in ADDITIONS[name]:
                raise ValueError(f"{name} has no setting {setting!r}; it has {list(ADDITIONS[name])}")
            check_number(setting, value, zero=name == "steps")
    return {name: ADDITIONS[name] | dict(additions[name]) for name in ADDITIONS if name in additions}


def paper_recipe(method: Method = "dynarule", stage: int = 2, **changes: Any) -> Recipe:
    """Return the paper's hyper-parameters; baselines are trained as DynaRule is, with losses of their own.

    Stage 1 injects 100 rules and attends to all of them, stage 2 starts from it with 1,000 of which 100 are kept.
    KBLaM has one stage: rules without retrieval.
    """
    settings: dict[str, Any] = {"method": method, "stage": 1 if method == "kblam" else stage}
    if settings["stage"] == 1:
        settings["pool_size"] = 100
    return Recipe(**(settings | changes))


def recipe_steps(recipe: Recipe, questions: int, processes: int = 1) -> int:
    """Return how many optimizer steps a recipe takes over a number of questions."""
    per_step = recipe.batch_size * recipe.accumulation * processes
    return recipe.max_steps or math.ceil(questions * recipe.epochs / per_step)


def recipe_file(name: str) -> Path:
    """Return ``deepspeed_zero2_offload.json`` (the paper's), or ``accelerate_zero2_offload.yaml``, the same."""
    path = Path(__file__).parent / "recipes" / name
    if not path.is_file():
        raise FileNotFoundError(
            f"no recipe file {name!r}; there are {sorted(p.name for p in path.parent.iterdir())}"
        )
    return path
