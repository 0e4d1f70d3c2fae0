"""A faiss index beside a bank, as tensors that are checked before faiss sees them.

faiss trusts the sizes in its own files, so a damaged or hostile one could crash or overrun a process. Here every shape
follows from the bank and the number of clusters, and faiss is given arrays.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._files import replacing
from .storage import hash_tensors, write_tensors

if TYPE_CHECKING:
    from .bank import RuleBank

INDEX = "index.safetensors"
FORMAT = "dynarule index 3"
TENSORS = ("sizes", "rows", "centroids", "ranges", "codes")


def empty_index(faiss: Any, width: int, nlist: int) -> Any:
    """Return an index of 8 bits a dimension, not trained."""
    return faiss.index_factory(width, f"IVF{nlist},SQ8", faiss.METRIC_INNER_PRODUCT)


def is_current(bank: RuleBank, folder: Path) -> bool:
    """Return whether a folder holds the index of a bank as it is now; the index itself is not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / INDEX, "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError):
        return False
    return bool(bank.digest) and (metadata.get("format"), metadata.get("bank")) == (FORMAT, bank.digest)


def write_index(faiss: Any, index: Any, bank: RuleBank, folder: Path) -> None:
    """Write an index of all rules of a bank, in the block of `changing`."""
    lists, width = index.invlists, index.code_size
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    full = [number for number, size in enumerate(sizes) if size]  # an empty list has no array
    rows = np.concatenate([faiss.rev_swig_ptr(lists.get_ids(i), sizes[i]) for i in full])
    codes = np.concatenate([faiss.rev_swig_ptr(lists.get_codes(i), sizes[i] * width) for i in full])
    centroids, ranges = index.quantizer.reconstruct_n(0, index.nlist), faiss.vector_to_array(index.sq.trained)
    parts = [*map(torch.from_numpy, (np.array(sizes), rows, centroids, ranges, codes.reshape(-1, width)))]
    metadata = {"format": FORMAT, "bank": bank.digest, "sha256": hash_tensors(parts)}
    with replacing(folder / INDEX) as part:
        write_tensors(part, dict(zip(TENSORS, parts, strict=True)), metadata)


def read_index(faiss: Any, bank: RuleBank, folder: Path, nlist: int) -> Any:
    """Return the index of a bank; entry i is row i.

    Raises
    ------
    ValueError
        If the file is not what was written, or not an index of this bank's shape.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / INDEX, "pt") as file:
            metadata = file.metadata() or {}
            parts = [file.get_tensor(name) for name in TENSORS]
        _check(parts, nlist, len(bank), bank.encoder_dim)
        if metadata.get("sha256") != hash_tensors(parts):
            raise ValueError("it was edited")
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{folder / INDEX} is damaged ({error}); make it again: dynarule bank index BANK"
        ) from None
    sizes, rows, centroids, ranges, codes = (part.numpy() for part in parts)
    index = empty_index(faiss, bank.encoder_dim, nlist)
    index.quantizer.add(centroids)
    faiss.copy_array_to_vector(ranges, index.sq.trained)
    ends = np.cumsum(sizes)
    for number, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        if end > start:
            few = faiss.swig_ptr(rows[start:end]), faiss.swig_ptr(codes[start:end])
            index.invlists.add_entries(number, int(end - start), *few)
    index.is_trained, index.ntotal = True, len(rows)
    return index


def _check(parts: list[Tensor], nlist: int, count: int, width: int) -> None:
    """Raise ValueError if tensors are not an index of `count` rules, of finite numbers, each in exactly one list."""
    shapes = [((nlist,), torch.int64), ((count,), torch.int64), ((nlist, width), torch.float32)]
    shapes += [((2 * width,), torch.float32), ((count, width), torch.uint8)]
    if [(tuple(part.shape), part.dtype) for part in parts] != shapes:
        raise ValueError(f"it has another shape than {count:,} rules of width {width} in {nlist} lists")
    sizes, rows, centroids, ranges, _ = parts
    if not (centroids.isfinite().all() and ranges.isfinite().all()):
        raise ValueError("a number is not finite")
    if not 0 <= int(sizes.min()) <= int(sizes.max()) <= count or int(sizes.sum()) != count:
        raise ValueError(f"its lists do not hold {count:,} rules")
    if not torch.equal(rows.sort().values, torch.arange(count)):
        raise ValueError("it does not hold each rule once")
