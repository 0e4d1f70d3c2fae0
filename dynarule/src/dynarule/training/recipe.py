"""Hyper-parameters of training: the paper's, by method and stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..memory.selection import PoolQueries
from ..memory.training import Visibility
from .pools import PAPER_MIX

Method = Literal["dynarule", "srki", "kblam"]
Embedding = Literal["none", "row", "full"]


@dataclass(frozen=True)
class Recipe:
    """How one stage is trained.

    The defaults are the paper's second stage of DynaRule; see `paper_recipe` for the others.
    """

    method: Method = field(default="dynarule", metadata={"help": "whose retrieval loss and target text"})
    stage: int = field(
        default=2, metadata={"help": "1: all rules, language model loss only; 2: top K, retrieval loss"}
    )
    pool_size: int | tuple[int, int] = field(default=1000, metadata={"help": "M, or a range drawn per batch"})
    hard_share: float = field(default=0.1, metadata={"help": "share of the pool with a gold rule's premise"})
    temperature: float = field(default=0.05, metadata={"help": "of the retrieval loss"})
    full_dot: bool = field(
        default=False, metadata={"help": "dot product over the full width, not mean of heads"}
    )
    retrieval_weight: float = field(default=1.0, metadata={"help": "weight of the retrieval loss"})
    reading_weight: float = field(
        default=0.0,
        metadata={
            "help": "weight of a loss by which tokens before new words find the rules of their step (ours; DynaRule's)"
        },
    )
    word_weight: float = field(
        default=1.0,
        metadata={"help": "weight of new words in the language model's loss: a rule has said them (ours)"},
    )
    pool_queries: PoolQueries = field(default="full", metadata={"help": "tokens that choose candidates"})
    visibility: Visibility = field(
        default="all", metadata={"help": "when tokens see gold rules of later steps"}
    )
    embedding: Embedding = field(
        default="row", metadata={"help": "train the row of <search>, or the whole matrix"}
    )
    learning_rate: float = field(default=1e-4, metadata={"help": "peak"})
    optimizer: Literal["adamw", "muon"] = field(
        default="adamw", metadata={"help": "of matrices; vectors are AdamW's"}
    )
    value_rate: float = field(
        default=1.0, metadata={"help": "rate of the matrices of values, of the learning rate (Muon)"}
    )
    vector_rate: float = field(
        default=1.0, metadata={"help": "rate of biases and rows, of the learning rate (Muon)"}
    )
    whiten: bool = field(
        default=False,
        metadata={"help": "step projections of rules as if embeddings varied alike in all directions (Muon)"},
    )
    schedule: str = field(default="cosine", metadata={"help": "a scheduler of transformers"})
    warmup_ratio: float = field(default=0.01, metadata={"help": "of the steps"})
    weight_decay: float = field(default=1e-4, metadata={"help": "of matrices of the adapter"})
    max_grad_norm: float = field(default=1.0, metadata={"help": "clipping"})
    batch_size: int = field(default=10, metadata={"help": "per process"})
    accumulation: int = field(default=5, metadata={"help": "batches per step"})
    by_length: bool = field(
        default=False,
        metadata={"help": "batches of a step hold questions of like length: as many questions in less time"},
    )
    epochs: float = field(
        default=5.0, metadata={"help": "passes over the questions (SR-KI's; the paper is silent)"}
    )
    max_steps: int | None = field(default=None, metadata={"help": "instead of epochs"})
    mix: Mapping[str, float] | None = field(
        default_factory=lambda: dict(PAPER_MIX), metadata={"help": "share of each family in a batch"}
    )
    seed: int = field(default=0, metadata={"help": "of order, pools and initial weights"})

    def __post_init__(self) -> None:
        for name, choices in (
            ("method", get_args(Method)),
            ("stage", (1, 2)),
            ("embedding", get_args(Embedding)),
            ("visibility", get_args(Visibility)),
            ("pool_queries", get_args(PoolQueries)),
            ("optimizer", ("adamw", "muon")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {getattr(self, name)!r}")
        for name in (
            "temperature",
            "learning_rate",
            "word_weight",
            "value_rate",
            "vector_rate",
            "batch_size",
            "accumulation",
            "epochs",
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        if self.whiten and self.optimizer != "muon":
            raise ValueError(f'whiten is for optimizer "muon", got {self.optimizer!r}; leave whiten out')
        given: Any = self.pool_size
        sizes = given if isinstance(given, tuple | list) else (given, given)
        numbers = len(sizes) == 2 and all(isinstance(size, int) for size in sizes)
        if not numbers or not 1 <= sizes[0] <= sizes[1]:
            raise ValueError(
                f"pool_size must be a positive number or a range (low, high), got {self.pool_size!r}"
            )

    @property
    def retrieves(self) -> bool:
        """Whether there is a retrieval loss."""
        return self.stage == 2 and self.method != "kblam" and self.retrieval_weight > 0

    @property
    def searches(self) -> bool:
        """Whether the target text has ``<search>`` between steps."""
        return self.stage == 2 and self.method == "dynarule"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def paper_recipe(method: Method = "dynarule", stage: int = 2, **changes: Any) -> Recipe:
    """Return the paper's hyper-parameters; baselines are trained as DynaRule is, with losses of their own.

    Stage 1 injects 100 rules and attends to all of them, stage 2 starts from it with 1,000 of which 100 are kept.
    KBLaM has one stage: rules without retrieval.
    """
    if method == "kblam":
        stage = 1
    first: dict[str, Any] = {"pool_size": 100, "embedding": "none"} if stage == 1 else {}
    other: dict[str, Any] = {"embedding": "none"} if method != "dynarule" else {}
    settings: dict[str, Any] = {"method": method, "stage": stage}
    return Recipe(**(settings | first | other | changes))


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
