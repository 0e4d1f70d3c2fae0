"""How a base is trained: its shape, its curriculum and its rates, read from a TOML file."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from pydantic.dataclasses import dataclass

from ..recipe_file import STRICT, read_recipe_file
from .curriculum import LADDERS

GATE_SEED = 2**31 - 1
"""Names the worlds of the gates; no training may use it."""


@dataclass(frozen=True, config=STRICT)
class Mixture:
    """What a block holds: shares of its tokens by sort of document."""

    terse: float = 0.0  # key-value lists
    recital: float = 0.0  # recited rule lists
    questions: float = 0.0  # questions with rules
    guess: float = 0.0  # questions without any rule
    requests: float = 0.0  # questions whose rules are asked for step by step
    plain: float = 0.0  # questions in plain English, some of them of this sort too
    same_type: float = 0.6  # share of recited lists of one rule type
    fol: float = 0.5  # share of lists in first-order logic
    asked: int = 3  # most questions on one list
    alike: float = 0.0  # share of the lists that hold rules which a search for the gold ones finds, too

    def __post_init__(self) -> None:
        shares = (self.terse, self.recital, self.questions, self.guess, self.requests, self.plain)
        if not 0 <= self.alike <= 1:
            raise ValueError(f"alike must be a share, 0 to 1, got {self.alike}")
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(
                f"terse + recital + questions + guess + requests + plain must be 1, got {shares}"
            )


@dataclass(frozen=True, config=STRICT)
class Phase:
    """One part of the curriculum."""

    name: str
    tokens: int
    mixture: Mixture
    until: dict[str, int] = field(default_factory=dict)  # ends early when these levels are reached
    rate: tuple[float, float] = (1.0, 1.0)  # factor of the learning rates at its start and end
    least: dict[str, int] = field(default_factory=dict)  # levels that it raises to these at its start

    def __post_init__(self) -> None:
        for what, levels in (("until", self.until), ("least", self.least)):
            for name, level in levels.items():
                if name not in LADDERS or not 0 <= level < len(LADDERS[name]):
                    raise ValueError(
                        f"phase {self.name!r}: {what} names {name}={level}; levels are "
                        + ", ".join(f"{key} 0-{len(steps) - 1}" for key, steps in LADDERS.items())
                    )


@dataclass(frozen=True, config=STRICT)
class Shape:
    """Sizes of the network."""

    hidden: int = 256  # width of the residual stream
    layers: int = 6
    heads: int = 8  # of queries
    kv_heads: int = 4
    feed_forward: int = 704
    positions: int = 4096  # longest sequence that the configuration states


@dataclass(frozen=True, config=STRICT)
class Lora:
    """A pretrained model that is taught by low-rank changes, in place of a network of one's own."""

    model: str  # name or folder
    mark: str  # one of its special tokens, which opens every step
    rank: int = 16
    first_layer: int = 0  # layers before it stay as they are
    begin: str | None = None  # a folder of such changes to begin with


@dataclass(frozen=True, config=STRICT)
class BaseRecipe:
    """Everything that decides the weights."""

    name: str
    phases: tuple[Phase, ...]
    shape: Shape = Shape()
    lora: Lora | None = None  # instead of a shape
    seed: int = 0  # names weights and data
    batch_tokens: int = 4096  # of a step, padding included
    block_tokens: int = 65536  # of a block of data
    longest: int = 1536  # longer documents are left out
    muon_rate: float = 3e-3  # of matrices
    adam_rate: float = 2e-3  # of the rest
    warmup: int = 100  # steps of rising rate at the start of every phase
    weight_decay: float = 0.01  # of matrices
    clip: float = 1.0  # largest norm of the gradient
    context_weight: float = 0.15  # loss weight of tokens that no lookup decides
    raise_at: float = 0.9  # success, mean over kinds, that raises a level
    raise_least: float = 0.75  # success of the worst kind that raises a level
    lag: int = 2  # blocks between a level's rise and the data that follow it

    def __post_init__(self) -> None:
        if self.seed == GATE_SEED:
            raise ValueError(f"seed {self.seed} names the worlds of the gates; take any other")

    @property
    def tokens(self) -> int:
        """Tokens of all phases together, at most."""
        return sum(phase.tokens for phase in self.phases)


def read_recipe(path: Path) -> BaseRecipe:
    """Read a recipe; see `read_recipe_file`."""
    return read_recipe_file(path, BaseRecipe, "a base", "benchmarks/base/tiny.toml")
