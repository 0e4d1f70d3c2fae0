"""A faiss index of a bank on disk, in parts: what a kill leaves is taken up, and a second process only reads it.

Beside the bank's file, in ``index/``: ``trained.safetensors`` with centroids and code books, and a file for every
`BLOCK` rules with the list and the code of each, as ``faiss`` encodes them alone. Whatever makes them, in whatever
order, the parts are the same; they say which bank they are of, and are safetensors like all that is read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._files import part_of

if TYPE_CHECKING:
    from .bank import RuleBank

FOLDER, TRAINED = "index", "trained.safetensors"
FORMAT = "dynarule index 1"
BLOCK = 65_536
Progress = Callable[[int, int], None]


def encode_parts(
    bank: RuleBank,
    folder: Path,
    faiss: Any,
    train: Callable[[int], Any],
    *,
    nlist: int,
    seed: int,
    progress: Progress | None = None,
) -> Any:
    """Make the parts that are not there; return the trained, empty faiss index.

    Parameters
    ----------
    bank : RuleBank
        As it was loaded: a bank that was changed since has no index on disk.
    folder : path
        Where the parts are.
    faiss : module
        The library.
    train : callable
        Trains an index for so many clusters; called if no part says how.
    nlist, seed : int
        Clusters, and the seed of training: parts with others are refused.
    progress : callable, optional
        Told how many of how many parts are there.

    Raises
    ------
    ValueError
        If parts are of another bank or index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = {"format": FORMAT, "bank": bank.digest, "nlist": str(nlist), "seed": str(seed)}
    path = folder / TRAINED
    if not path.is_file():
        with part_of(path) as part:  # who comes second waits, and reads what the first has trained
            if not path.is_file():
                index = train(nlist)
                centroids = index.quantizer.reconstruct_n(0, nlist)
                books = faiss.vector_to_array(index.pq.centroids)
                _save(part, {"centroids": centroids, "books": books}, about)
                part.replace(path)
    found = _load(path, about)
    index = faiss.index_factory(
        bank.encoder_dim, f"IVF{nlist},PQ{bank.encoder_dim // 4}x4", faiss.METRIC_INNER_PRODUCT
    )
    index.by_residual = False
    index.quantizer.add(found["centroids"].numpy())
    faiss.copy_array_to_vector(found["books"].numpy(), index.pq.centroids)
    index.is_trained = True
    for block in range(_count(bank)):
        path = folder / _name(bank, block)
        if not path.is_file():
            with part_of(path) as part:
                start = block * BLOCK
                rows = torch.arange(start, min(start + BLOCK, len(bank)))
                _save(part, {"codes": index.sa_encode(bank.keys_at(rows).float().cpu().numpy())}, about)
                part.replace(path)
        if progress:
            progress(block + 1, _count(bank))
    return index


def is_whole(bank: RuleBank, folder: Path) -> bool:
    """Say whether a folder holds every part of the index of a bank as it is now."""
    paths = [folder / TRAINED, *(folder / _name(bank, block) for block in range(_count(bank)))]
    if not bank.digest or not all(path.is_file() for path in paths):
        return False
    return _read(paths[0])[1].get("bank") == bank.digest


def read_parts(bank: RuleBank, folder: Path, faiss: Any, index: Any, *, nlist: int, seed: int) -> Any:
    """Fill a trained index from its parts and return it as fast scan reads it; entry i is row i of the bank.

    Raises
    ------
    ValueError
        If a part is missing, damaged or of another bank.
    """
    about = {"format": FORMAT, "bank": bank.digest, "nlist": str(nlist), "seed": str(seed)}
    missing = [name for block in range(_count(bank)) if not (folder / (name := _name(bank, block))).is_file()]
    if missing:
        raise ValueError(
            f"{len(missing)} of {_count(bank)} parts of the index are missing in {folder}, such as {missing[0]}; make "
            "them with: dynarule bank index BANK"
        )
    codes = torch.cat(
        [_load(folder / _name(bank, block), about)["codes"] for block in range(_count(bank))]
    ).numpy()
    head = codes.shape[1] - index.code_size  # the bytes of the list's number, lowest first
    if len(codes) != len(bank) or head != index.coarse_code_size():
        raise ValueError(
            f"the parts in {folder} hold {codes.shape} bytes for {len(bank):,} rules; make them again"
        )
    lists = (codes[:, :head].astype(np.int64) << (8 * np.arange(head))).sum(1)
    if int(lists.max()) >= nlist:
        raise ValueError(f"the parts in {folder} name list {int(lists.max())} of {nlist}; make them again")
    order = np.argsort(lists, kind="stable")
    ends = np.searchsorted(lists[order], np.arange(nlist + 1))
    kept = np.ascontiguousarray(codes[order, head:])
    for number in range(nlist):
        start, stop = int(ends[number]), int(ends[number + 1])
        if stop > start:
            ids, part = order[start:stop].astype(np.int64), kept[start:stop]
            index.invlists.add_entries(number, stop - start, faiss.swig_ptr(ids), faiss.swig_ptr(part))
    index.ntotal = len(codes)
    return faiss.IndexIVFPQFastScan(index)


def _count(bank: RuleBank) -> int:
    return math.ceil(len(bank) / BLOCK)


def _name(bank: RuleBank, block: int) -> str:
    return f"{block + 1:05d}-of-{_count(bank):05d}.safetensors"


def _save(path: Path, arrays: dict[str, np.ndarray], about: dict[str, str]) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, about)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return a part's tensors, and what it says that it is of."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); delete it and make it again: dynarule bank index"
        ) from None


def _load(path: Path, about: dict[str, str]) -> dict[str, Tensor]:
    found, said = _read(path)
    for name, value in about.items():
        if said.get(name) != value:
            raise ValueError(
                f"{path} is of another index: {name} is {said.get(name)!r} there and {value!r} here; delete the folder "
                f"{path.parent}, and make it again: dynarule bank index"
            )
    return found
