"""Random embeddings by key, in files that are mapped, not read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 65_536


def random_rows(folder: Path, rules: int, width: int, dtype: str, key: int) -> Tensor:
    """Return unit vectors in random directions, (rules, width), mapped from a file made on first use.

    Block b is a function of (key, b), so the first rows of a large file are those of a small one. Such vectors say
    nothing about what a search finds, only what it costs.

    Parameters
    ----------
    folder : Path
        Where the files lie.
    rules, width : int
        Shape.
    dtype : {"fp32", "fp16"}
        How they are stored.
    key : int
        Which random numbers.
    """
    import torch

    kind = np.dtype({"fp32": "float32", "fp16": "float16"}[dtype])
    if not rules:
        return torch.empty(0, width, dtype=getattr(torch, kind.name))
    path = folder / f"random-{rules}x{width}-{dtype}-key{key}.npy"
    if not path.exists():
        _write(path, rules, width, kind, key)
    # Mapped copy-on-write: torch wants memory that it may write to, and nobody does.
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _write(path: Path, rules: int, width: int, kind: np.dtype, key: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".npy", dir=path.parent)
    os.close(handle)
    try:
        rows = np.lib.format.open_memmap(name, mode="w+", dtype=kind, shape=(rules, width))
        for number, start in enumerate(range(0, rules, BLOCK)):
            stream = np.random.Generator(np.random.Philox(np.random.SeedSequence((key, number))))
            block = stream.standard_normal((BLOCK, width), dtype=np.float32)[: rules - start]
            rows[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
        rows.flush()
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
