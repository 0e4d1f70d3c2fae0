"""What is measured: settings that all cells share, and one cell per method and number of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .shapes import shape_of

RULES = (0, 100, 1_000, 10_000, 100_000, 1_000_000)
METHODS = {
    "dynarule": "DynaRule",
    "prompting": "rules in the prompt",
    "inject-all": "all rules, every layer",
    "inject-third": "all rules, every third layer (KBLaM)",
}
DEVICES = ("cpu", "cuda")
DTYPES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a number."""
TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Settings:
    """How every cell of a table is measured."""

    shape: str = field(default="qwen2-0.5b", metadata={"help": "model"})
    device: str = field(default="cpu", metadata={"help": "cpu or cuda"})
    dtype: str = field(default="fp32", metadata={"help": "of the model"})
    threads: int = field(default=1, metadata={"help": "CPU threads"})
    encoder_dim: int = field(default=384, metadata={"help": "P, width of the embeddings"})
    embeddings: str = field(default="fp32", metadata={"help": "of rules, memory-mapped: fp32 or fp16"})
    top_k: int = field(default=100, metadata={"help": "K, rules kept per layer"})
    prompt_tokens: int = field(default=64, metadata={"help": "length of the question"})
    new_tokens: int = field(default=8, metadata={"help": "decoded tokens per repeat"})
    repeats: int = field(default=7, metadata={"help": "pairs of base and method, at most"})
    cell_seconds: float = field(default=60.0, metadata={"help": "no new repeat after so long"})
    tokens_per_rule: int = field(default=14, metadata={"help": "of a rule in the prompt"})
    memory_gb: float = field(default=8.0, metadata={"help": "rules that need more are not tried"})
    seed: int = field(default=0, metadata={"help": "key of weights, tokens and embeddings"})

    def __post_init__(self) -> None:
        shape_of(self.shape)
        for name, allowed in (
            ("device", DEVICES),
            ("dtype", tuple(DTYPES)),
            ("embeddings", ("fp32", "fp16")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in (
            "threads", "encoder_dim", "top_k", "prompt_tokens", "new_tokens", "repeats", "tokens_per_rule",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def clock(self) -> str:
        """Which clock the figures are of.

        One CPU thread: its CPU time, which on an idle machine is the wall clock, and on a shared one still counts only
        our work. Else the wall clock.
        """
        return "cpu" if self.device == "cpu" and self.threads == 1 else "wall"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class TrainingSettings:
    """A training step; the defaults are the paper's batch and rules on a model that a CPU can train."""

    shape: str = field(default="small", metadata={"help": "model"})
    device: str = field(default="cpu", metadata={"help": "cpu or cuda"})
    dtype: str = field(default="fp32", metadata={"help": "of the model; what is trained is fp32"})
    threads: int = field(default=1, metadata={"help": "CPU threads"})
    encoder_dim: int = field(default=384, metadata={"help": "P, width of the embeddings"})
    rules: int = field(default=1_000, metadata={"help": "M, rules of the batch's pool"})
    top_k: int = field(default=100, metadata={"help": "K, rules kept per layer"})
    batch: int = field(default=10, metadata={"help": "questions per batch"})
    tokens: int = field(default=245, metadata={"help": "length of a sequence (SR-KI's limit)"})
    steps: int = field(default=3, metadata={"help": "reasoning steps per question"})
    accumulation: int = field(default=5, metadata={"help": "batches per update"})
    repeats: int = field(default=5, metadata={"help": "pairs of batches without and with rules"})
    seed: int = field(default=0, metadata={"help": "key of weights, tokens and embeddings"})

    def __post_init__(self) -> None:
        shape_of(self.shape)
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        for name in ("threads", "encoder_dim", "top_k", "batch", "steps", "accumulation", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.rules < 2 * self.batch * self.steps:
            raise ValueError(
                f"a batch of {self.batch} questions has {2 * self.batch * self.steps} gold rules, the pool only "
                f"{self.rules}; raise --rules or lower --batch"
            )
        if self.top_k < 2 * self.steps:
            raise ValueError(
                f"top_k must hold the {2 * self.steps} gold rules of a question, got {self.top_k}"
            )
        if self.tokens < 4 * self.steps:
            raise ValueError(f"{self.steps} steps need at least {4 * self.steps} tokens, got {self.tokens}")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class RecallSettings:
    """Which rules and questions."""

    scale: str = field(default="paper", metadata={"help": "world: tiny, paper, full"})
    rules: int = field(default=100_000, metadata={"help": "rules searched; beyond the world's own, drawn"})
    questions: int = field(default=256, metadata={"help": "held-out questions asked, one at a time"})
    training: int = field(default=2_000, metadata={"help": "questions that the projection is trained on"})
    train_steps: int = field(default=300, metadata={"help": "training steps of the projection"})
    threads: int = field(default=1, metadata={"help": "CPU threads"})
    seed: int = field(default=0, metadata={"help": "key of weights, order and drawn rules"})

    def __post_init__(self) -> None:
        for name in ("rules", "questions", "training", "train_steps", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.rules < 100:
            raise ValueError(f"Recall@100 needs 100 rules, got {self.rules}")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One measurement: a method and its number of rules M."""

    method: str
    rules: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.rules < 0:
            raise ValueError(f"the number of rules must not be negative, got {self.rules}")

    def obstacle(self, settings: Settings) -> str | None:
        """Say why this cell cannot be measured here; None if it can."""
        shape = shape_of(settings.shape)
        if self.method == "prompting":
            tokens = settings.prompt_tokens + settings.tokens_per_rule * self.rules + settings.new_tokens
            if tokens > shape.context:
                return f"{tokens:,} tokens do not fit the context of {shape.context:,}"
        elif self.method.startswith("inject"):
            layers = len(range(0, shape.layers, 1 if self.method == "inject-all" else 3))
            need = 2 * layers * shape.width * DTYPES[settings.dtype] * self.rules / 1e9
            if need > settings.memory_gb:
                return f"keys and values need {need:,.1f} GB, allowed are {settings.memory_gb:g}"
        return None


def grid(methods: Sequence[str], rules: Sequence[int]) -> list[Cell]:
    """Return the cells of a table, quick ones first: baselines have no cell without rules."""
    cells = [Cell(method, count) for method in methods for count in rules]
    return [cell for cell in cells if cell.rules or cell.method == "dynarule"]
