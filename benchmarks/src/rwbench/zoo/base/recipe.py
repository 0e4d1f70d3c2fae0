"""How a base is trained: its shape, its curriculum and its rates, read from a TOML file."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from ..recipe_file import STRICT, read_recipe_file
from .curriculum import Phase

GATE_SEED = 2**31 - 1
"""Names the worlds of the gates; no training may use it."""


@dataclass(frozen=True, config=STRICT)
class Shape:
    """Sizes of the network."""

    hidden: int = field(default=256, metadata={"help": "width of the residual stream"})
    layers: int = field(default=6, metadata={"help": "number of layers"})
    heads: int = field(default=8, metadata={"help": "query heads"})
    kv_heads: int = field(default=4, metadata={"help": "key and value heads"})
    feed_forward: int = field(default=704, metadata={"help": "width of the feed-forward part"})
    positions: int = field(default=4096, metadata={"help": "longest sequence the configuration states"})


@dataclass(frozen=True, config=STRICT)
class BaseRecipe:
    """Everything that decides the weights."""

    name: str = field(metadata={"help": "name of the recipe"})
    phases: tuple[Phase, ...] = field(metadata={"help": "curriculum"})
    shape: Shape = field(default=Shape(), metadata={"help": "network"})
    seed: int = field(default=0, metadata={"help": "names weights and data"})
    batch_tokens: int = field(default=4096, metadata={"help": "tokens of a step, padding included"})
    block_tokens: int = field(default=65536, metadata={"help": "tokens of a block of data"})
    longest: int = field(default=1536, metadata={"help": "longer documents are left out"})
    muon_rate: float = field(default=3e-3, metadata={"help": "learning rate of matrices (Muon)"})
    adam_rate: float = field(default=2e-3, metadata={"help": "learning rate of the rest (AdamW)"})
    warmup: int = field(default=100, metadata={"help": "steps of rising rate at the start of every phase"})
    weight_decay: float = field(default=0.01, metadata={"help": "of matrices"})
    clip: float = field(default=1.0, metadata={"help": "largest norm of the gradient"})
    context_weight: float = field(
        default=0.15, metadata={"help": "loss weight of tokens that no lookup decides"}
    )
    plan_weight: float = field(
        default=0.1, metadata={"help": "loss weight of the next step's words at <step>"}
    )
    plan_layers: tuple[int, ...] = field(
        default=(1, 2), metadata={"help": "layers whose states plan, from 0"}
    )
    raise_at: float = field(default=0.9, metadata={"help": "success, mean over kinds, that raises a level"})
    raise_least: float = field(
        default=0.75, metadata={"help": "success of the worst kind that raises a level"}
    )
    lag: int = field(
        default=2, metadata={"help": "blocks between a level's rise and the data that follow it"}
    )

    def __post_init__(self) -> None:
        if self.seed == GATE_SEED:
            raise ValueError(f"seed {self.seed} names the worlds of the gates; take any other")

    @property
    def tokens(self) -> int:
        """Tokens of all phases together, at most."""
        return sum(phase.tokens for phase in self.phases)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def read_recipe(path: Path) -> BaseRecipe:
    """Read a recipe; see `read_recipe_file`."""
    return read_recipe_file(path, BaseRecipe, "a base", "benchmarks/base/cpu.toml")
