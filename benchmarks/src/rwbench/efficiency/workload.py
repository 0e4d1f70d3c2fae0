"""What is timed: random models, tokens and embeddings, since cost depends on shapes alone; clock and peak of memory."""

import resource
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

BLOCK = 65_536
"""Rows of embeddings that are drawn at once."""
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]

SHAPES = tomllib.loads(Path(__file__).with_name("shapes.toml").read_text(encoding="utf-8"))
"""Models by name: what transformers' `Qwen2Config` is given."""


@dataclass(frozen=True)
class Settings:
    """What all cells of a table share: a model with random weights, and rules with random embeddings."""

    shape: Literal["qwen2-0.5b", "qwen2.5-7b", "tiny"] = "qwen2-0.5b"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    encoder_dim: Some = 384
    top_k: Some = 100
    embeddings: Literal["fp32", "fp16"] = "fp32"
    premises: Count = 0  # different keys that rules share; 0: each rule its own
    conclusions: Count = 0  # the same of values
    prompt_tokens: Some = 64
    new_tokens: Some = 8
    repeats: Some = 7
    cell_seconds: float = 60.0  # no new repeat begins after this time
    tokens_per_rule: Some = 14
    seed: int = 0

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return Qwen2Config(**SHAPES[self.shape])

    @property
    def search_token(self) -> int:
        """The vocabulary's last id, which no random prompt holds."""
        return int(SHAPES[self.shape]["vocab_size"]) - 1


def random_model(settings: Settings) -> Any:
    """Return a Qwen2 model with small random weights, frozen, in eval mode."""
    torch.manual_seed(settings.seed)
    with torch.device(settings.device):  # 7 billion weights would take minutes on a CPU
        model = Qwen2ForCausalLM._from_config(settings.config, dtype=getattr(torch, DTYPES[settings.dtype]))
    return model.eval().requires_grad_(False)


def random_tokens(count: int, below: int, key: int, device: str) -> Tensor:
    """Return keyed random tokens, (1, count)."""
    draw = np.random.default_rng((key, count))
    return torch.from_numpy(draw.integers(0, below, (1, count))).to(device)


def random_rows(path: Path, rules: int, width: int, dtype: str, key: int) -> Tensor:
    """Return unit vectors in random directions, (rules, width), mapped from a file that is written first.

    Such vectors say nothing about what a search finds, only what it costs.
    """
    if not rules:
        return torch.empty(0, width, dtype=getattr(torch, DTYPES[dtype]))
    rows = np.memmap(path, DTYPES[dtype], "w+", shape=(rules, width))
    draw = np.random.default_rng(key)
    for start in range(0, rules, BLOCK):
        block = draw.standard_normal((min(BLOCK, rules - start), width), dtype=np.float32)
        rows[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    rows.flush()
    # Mapped copy-on-write: torch asks for memory that it may write to, though nothing does.
    return torch.from_numpy(np.memmap(path, DTYPES[dtype], "c", shape=(rules, width)))


def timed(work: Callable[[], object], device: str) -> float:
    """Run something once and return its ms: of CPU, which on a shared machine counts our work alone; on a GPU, wall."""
    if device == "cpu":
        start = time.process_time()
        work()
        return 1e3 * (time.process_time() - start)
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def reset_peak(device: str) -> None:
    """Forget the peak of memory so far (on Linux and on a GPU; elsewhere the peak is the process's)."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")


def peak_mb(device: str) -> float:
    """Return the peak since `reset_peak` in MB: resident pages, mapped files among them; on a GPU, allocated."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and number of values."""
    quartiles = zip(("q25", "median", "q75"), np.percentile(values, [25, 50, 75]), strict=True)
    return {name: round(float(value), 4) for name, value in quartiles} | {"n": len(values)}
