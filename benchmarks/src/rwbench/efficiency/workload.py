"""Random models, tokens and embeddings, since cost depends on shapes alone; the clock and the peak of memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.io import whole_file

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

BLOCK = 65_536
"""Rows of embeddings that are drawn from one key."""
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Qwen2 model, as in its configuration."""

    hidden: int  # heads times head dimension too
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: bool  # input and output embeddings are one matrix
    context: int = 32_768  # tokens; prompting cannot use more

    @property
    def search_token(self) -> int:
        """The vocabulary's last id, which no random prompt holds."""
        return self.vocab - 1


SHAPES = {
    "qwen2-0.5b": ModelShape(896, 24, 14, 2, 4_864, 151_936, tied=True),
    "qwen2.5-7b": ModelShape(3_584, 28, 28, 4, 18_944, 152_064, tied=False),
    "tiny": ModelShape(32, 2, 4, 2, 64, 101, tied=True, context=512),
}


def keyed(*key: int) -> np.random.Generator:
    """Return the random numbers of a key."""
    import numpy as np

    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def random_model(shape: ModelShape, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """Return a Qwen2 model with small random weights, frozen, in eval mode."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(seed)
    with torch.device(device):  # 7 billion weights would take minutes on a CPU
        model = Qwen2ForCausalLM._from_config(config, dtype=dtype)
    return model.eval().requires_grad_(False)


def random_tokens(count: int, below: int, key: int, device: str) -> Tensor:
    """Return keyed random tokens, (1, count)."""
    import torch

    return torch.from_numpy(keyed(key, count).integers(0, below, (1, count))).to(device)


def random_rows(folder: Path, rules: int, width: int, dtype: str, key: int) -> Tensor:
    """Return unit vectors in random directions, (rules, width), mapped from a file made on first use.

    Block b is a function of (key, b), so the first rows of a large file are those of a small one. Such vectors say
    nothing about what a search finds, only what it costs.
    """
    import numpy as np
    import torch

    kind = np.dtype({"fp32": "float32", "fp16": "float16"}[dtype])
    if not rules:
        return torch.empty(0, width, dtype=getattr(torch, kind.name))
    path = folder / f"random-{rules}x{width}-{dtype}-key{key}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            rows = np.lib.format.open_memmap(part, mode="w+", dtype=kind, shape=(rules, width))
            for number, start in enumerate(range(0, rules, BLOCK)):
                block = keyed(key, number).standard_normal((BLOCK, width), dtype=np.float32)[: rules - start]
                rows[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
            rows.flush()
    # Mapped copy-on-write: torch asks for memory that it may write to, though nothing does.
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def timed(work: Callable[[], object], device: str) -> tuple[float, float]:
    """Run something once; return wall and CPU seconds, with what the GPU still had to do."""
    _wait(device)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    _wait(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def reset_peak(device: str) -> None:
    """Forget the peak of memory so far (on Linux and on a GPU; elsewhere the peak is the process's)."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")


def peak_mb(device: str) -> float:
    """Return the peak since `reset_peak` in MB: resident pages, mapped files among them; on a GPU, allocated."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and number of values."""
    import numpy as np

    low, middle, high = np.percentile(np.asarray(values, dtype=np.float64), [25, 50, 75])
    quartiles = {"median": middle, "q25": low, "q75": high}
    return {name: round(float(value), 4) for name, value in quartiles.items()} | {"n": len(values)}
