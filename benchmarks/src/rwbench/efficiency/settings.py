"""What is measured: settings of each benchmark, and one cell per method and number of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .workload import SHAPES, ModelShape

RULES = (0, 100, 1_000, 10_000, 100_000, 1_000_000)
SEARCHED = (100, 1_000, 10_000, 100_000, 1_000_000, 4_936_113)
METHODS = {
    "dynarule": "DynaRule",
    "dynarule-plus": "DynaRule+",
    "dynarule-plus-together": "DynaRule+, rules read together",
    "prompting": "rules in the prompt",
    "inject-all": "all rules, every layer",
    "inject-third": "all rules, every third layer (KBLaM)",
}
PLUS: dict[str, Any] = {
    "confidence_layer": 2, "first_layer": 2, "shared_after": True, "reading": "tokens", "search_heads": 4,
    "search_offsets": 64, "lookahead": 4, "score_weight": 6.0, "score_limit": 4.0, "top_k": 16,
}  # fmt: skip
"""DynaRule+ as its recipe has it; how many rules a search keeps is its own too."""
TOGETHER: dict[str, Any] = {"together": True, "search_tail": 24, "score_weight": 0.0, "score_limit": None}
"""What its recipe for a pretrained model has instead."""
DTYPES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a number."""
TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def option(default: Any, help: str, choices: Sequence[str] = (), least: int = 1) -> Any:
    """Return a field that is an option of the command too."""
    return field(default=default, metadata={"help": help, "choices": tuple(choices), "least": least})


@dataclass(frozen=True)
class Settings:
    """What every benchmark is told.

    Raises
    ------
    ValueError
        If a word is none of its choices, or a count is below 1.
    """

    device = "cpu"
    threads: int = option(1, "CPU threads")
    seed: int = option(0, "key of everything random", least=0)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, choices = getattr(self, each.name), each.metadata["choices"]
            if choices and value not in choices:
                raise ValueError(f"{each.name} must be one of {', '.join(choices)}, got {value!r}")
            least = each.metadata["least"]
            if isinstance(value, int) and value < least:
                raise ValueError(f"{each.name} must be {least} or more, got {value}")

    @property
    def by_cpu_time(self) -> bool:
        """Whether figures are of CPU time, else of the wall clock.

        One CPU thread: its CPU time, which on an idle machine is the wall clock, and on a shared one still counts only
        our work.
        """
        return self.device == "cpu" and self.threads == 1


@dataclass(frozen=True)
class ModelSettings(Settings):
    """A model with random weights, and rules with random embeddings."""

    shape: str = option("qwen2-0.5b", "model", tuple(SHAPES))
    device: str = option("cpu", "cpu or cuda", ("cpu", "cuda"))
    dtype: str = option("fp32", "of the model", tuple(DTYPES))
    encoder_dim: int = option(384, "P, width of the embeddings")
    top_k: int = option(100, "K, rules kept per layer")

    @property
    def sizes(self) -> ModelShape:
        """Sizes of the model."""
        return SHAPES[self.shape]


@dataclass(frozen=True)
class ServingSettings(ModelSettings):
    """How every cell of a serving table is measured."""

    embeddings: str = option("fp32", "of rules, memory-mapped: fp32 or fp16", ("fp32", "fp16"))
    premises: int = option(0, "different keys that rules share; 0: each its own", least=0)
    conclusions: int = option(0, "different values that rules share; 0: each its own", least=0)
    prompt_tokens: int = option(64, "length of the question")
    new_tokens: int = option(8, "decoded tokens per repeat")
    repeats: int = option(7, "pairs of base and method, at most")
    cell_seconds: float = option(60.0, "no new repeat after so long")
    tokens_per_rule: int = option(14, "of a rule in the prompt")
    memory_gb: float = option(8.0, "rules that need more are not tried")


@dataclass(frozen=True)
class TrainingSettings(ModelSettings):
    """A training step; the defaults are the paper's batch and rules on a model that a CPU can train."""

    shape: str = option("small", "model", tuple(SHAPES))
    dtype: str = option("fp32", "of the model; what is trained is fp32", tuple(DTYPES))
    rules: int = option(1_000, "M, rules of the batch's pool")
    batch: int = option(10, "questions per batch")
    tokens: int = option(245, "length of a sequence (SR-KI's limit)")
    steps: int = option(3, "reasoning steps per question")
    accumulation: int = option(5, "batches per update")
    repeats: int = option(5, "pairs of batches without and with rules")

    def __post_init__(self) -> None:
        super().__post_init__()
        gold, steps = 2 * self.batch * self.steps, self.steps
        if self.rules < gold:
            raise ValueError(
                f"a batch of {self.batch} questions has {gold} gold rules, the pool only {self.rules}; raise --rules "
                "or lower --batch"
            )
        if self.top_k < 2 * steps:
            raise ValueError(f"top_k must hold the {2 * steps} gold rules of a question, got {self.top_k}")
        if self.tokens < 4 * steps:
            raise ValueError(f"{steps} steps need at least {4 * steps} tokens, got {self.tokens}")


@dataclass(frozen=True)
class RecallSettings(Settings):
    """Which rules and questions; indexes are searched on the CPU."""

    scale: str = option("paper", "world: tiny, paper, full")
    rules: int = option(100_000, "rules searched; beyond the world's own, drawn")
    questions: int = option(256, "held-out questions asked, one at a time")
    training: int = option(2_000, "questions that the projection is trained on")
    train_steps: int = option(300, "training steps of the projection")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rules < 100:
            raise ValueError(f"Recall@100 needs 100 rules, got {self.rules}")


@dataclass(frozen=True)
class SearchSettings(Settings):
    """One query at a time over rows that are mapped from a file; on the CPU."""

    encoder_dim: int = option(256, "P, width of the embeddings")
    embeddings: str = option("fp16", "of rules, memory-mapped: fp32 or fp16", ("fp32", "fp16"))
    top_k: int = option(100, "K, rules found")
    repeats: int = option(7, "searches")


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

    def obstacle(self, settings: ServingSettings) -> str | None:
        """Say why this cell cannot be measured here; None if it can."""
        shape = settings.sizes
        if self.method == "prompting":
            tokens = settings.prompt_tokens + settings.tokens_per_rule * self.rules + settings.new_tokens
            if tokens > shape.context:
                return f"{tokens:,} tokens do not fit the context of {shape.context:,}"
        elif self.method.startswith("inject"):
            layers = len(range(0, shape.layers, 1 if self.method == "inject-all" else 3))
            need = 2 * layers * shape.hidden * DTYPES[settings.dtype] * self.rules / 1e9
            if need > settings.memory_gb:
                return f"keys and values need {need:,.1f} GB, allowed are {settings.memory_gb:g}"
        return None


def grid(methods: Sequence[str], rules: Sequence[int]) -> list[Cell]:
    """Return the cells of a table, quick ones first: baselines have no cell without rules."""
    cells = [Cell(method, count) for method in methods for count in rules]
    return [cell for cell in cells if cell.rules or cell.method == "dynarule"]
