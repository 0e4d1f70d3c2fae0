"""How a serving table is measured, and what each of its cells is: a method and a number of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ruleworld_data.spec import check_name

from .workload import SHAPES, ModelShape

RULES = (0, 100, 1_000, 10_000, 100_000, 1_000_000)
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
"""DynaRule+ as its recipe has it, the rules kept per search included."""
TOGETHER: dict[str, Any] = {"together": True, "search_tail": 24, "score_weight": 0.0, "score_limit": None}
"""What its recipe for a pretrained model has instead."""
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class Settings:
    """What all cells of a table share: a model with random weights, and rules with random embeddings.

    Parameters
    ----------
    premises, conclusions : int
        Different keys and values that rules share; 0: each rule its own.
    cell_seconds : float
        No new repeat begins after this time.
    memory_gb : float
        Rules whose keys and values need more are not tried.

    Raises
    ------
    ValueError
        If a word is none of its choices, or a count is too small.
    """

    shape: str = "qwen2-0.5b"
    device: str = "cpu"
    dtype: str = "fp32"
    threads: int = 1
    encoder_dim: int = 384
    top_k: int = 100
    embeddings: str = "fp32"
    premises: int = 0
    conclusions: int = 0
    prompt_tokens: int = 64
    new_tokens: int = 8
    repeats: int = 7
    cell_seconds: float = 60.0
    tokens_per_rule: int = 14
    memory_gb: float = 8.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_name("shape", self.shape, SHAPES)
        check_name("device", self.device, ("cpu", "cuda"))
        check_name("dtype", self.dtype, DTYPES)
        check_name("embeddings", self.embeddings, ("fp32", "fp16"))
        for name in ("threads", "encoder_dim", "top_k", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def sizes(self) -> ModelShape:
        """Sizes of the model."""
        return SHAPES[self.shape]

    @property
    def by_cpu_time(self) -> bool:
        """Whether figures are of CPU time, else of the wall clock.

        On a shared machine the CPU time of one thread counts only our work.
        """
        return self.device == "cpu" and self.threads == 1


@dataclass(frozen=True)
class Cell:
    """One measurement: a method and its number of rules M."""

    method: str
    rules: int

    def __post_init__(self) -> None:
        check_name("method", self.method, METHODS)
        if self.rules < 0:
            raise ValueError(f"the number of rules must not be negative, got {self.rules}")

    def obstacle(self, settings: Settings) -> str | None:
        """Say why this cell cannot be measured here; None if it can."""
        shape = settings.sizes
        if self.method == "prompting":
            tokens = settings.prompt_tokens + settings.tokens_per_rule * self.rules + settings.new_tokens
            if tokens > shape.context:
                return f"{tokens:,} tokens do not fit the context of {shape.context:,}"
        elif self.method.startswith("inject"):
            layers = len(range(0, shape.layers, 1 if self.method == "inject-all" else 3))
            need = 2 * layers * shape.hidden * BYTES[settings.dtype] * self.rules / 1e9
            if need > settings.memory_gb:
                return f"keys and values need {need:,.1f} GB, allowed are {settings.memory_gb:g}"
        return None


def grid(methods: Sequence[str], rules: Sequence[int]) -> list[Cell]:
    """Return the cells of a table; only DynaRule is measured without rules."""
    cells = [Cell(method, count) for method in methods for count in rules]
    return [cell for cell in cells if cell.rules or cell.method == "dynarule"]
