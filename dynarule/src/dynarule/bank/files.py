"""A bank as a folder with one safetensors file, so that one rename replaces it.

The tensors are ``keys``, (U, P), ``values``, (V, P), the different ones of each; ``key_rows`` and ``value_rows``, (M,),
which of them are a rule's, or (0,) where each rule has one of its own; and ``rules``, the bytes of two JSON arrays, ids
and texts. The metadata have format, encoder, and a hash of them all.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._files import assembled, changing, settle
from .bank import RuleBank
from .index_parts import FOLDER
from .shared_rows import SharedRows

FORMAT = "dynarule bank 4"
FILE = "bank.safetensors"
TENSORS = ("keys", "key_rows", "values", "value_rows", "rules")
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint8: "U8",
}


def save_bank(bank: RuleBank, folder: str | PathLike[str], overwrite: bool = False) -> None:
    """Write a bank, whole or not at all.

    Parameters
    ----------
    bank : RuleBank
        The rules, with their embeddings in the bank's dtype.
    folder : path
        Where; must not hold anything, unless ``overwrite`` and it is a bank.

    Raises
    ------
    FileExistsError, ValueError
        If a bank is there already; if the folder is there and no bank.
    """
    folder = Path(folder)
    check_place(folder, overwrite)
    with changing(folder):
        check_place(folder, overwrite)
        _write(bank, folder)


def check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that `save_bank` would refuse: before embeddings are computed for it, which may take hours."""
    if is_bank(folder):
        if not overwrite:
            raise FileExistsError(
                f"{folder} exists already; choose a new folder, or overwrite it (--overwrite, overwrite=True)"
            )
    elif folder.is_file() or (folder.is_dir() and any(path.name[0] != "." for path in folder.iterdir())):
        raise ValueError(
            f"{folder} is not a rule bank (no {FILE}), so it is not overwritten; choose a new folder"
        )


@contextmanager
def changed_bank(folder: str | PathLike[str]) -> Iterator[RuleBank]:
    """Read a bank, change it in the block, and write it; no one else changes it meanwhile.

    Examples
    --------
    >>> with changed_bank("bank") as bank:  # doctest: +SKIP
    ...     bank.remove(["12"])
    """
    if not is_bank(Path(folder)):
        load_bank(folder)  # says what is missing; no folder is made
    with changing(Path(folder)):
        bank = load_bank(folder)
        yield bank
        _write(bank, Path(folder))


def load_bank(folder: str | PathLike[str]) -> RuleBank:
    """Read a bank; its embeddings stay in the file until they are read, and processes share them.

    Raises
    ------
    FileNotFoundError
        If there is no bank.
    ValueError
        If the file is damaged, of another format, or holds what is no bank.
    """
    path = Path(folder) / FILE
    settle(path.parent)
    if not path.is_file():
        old = (
            ", but one of an earlier version; build it again in a new folder"
            if (Path(folder) / "bank.json").is_file()
            else ""
        )
        raise FileNotFoundError(
            f"no rule bank in {folder} (no {FILE}){old}: dynarule bank build, or RuleBank.save"
        )
    while True:
        before = _identity(path)
        try:
            return _read(path)
        except ValueError:
            # safetensors opens a file twice, by name; in between another process may have renamed a new one there.
            if _identity(path) == before:
                raise


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path) -> RuleBank:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ValueError(f"it has format {about.get('format')!r}, this version reads {FORMAT!r}")
            tensors = [file.get_tensor(name) for name in TENSORS]
        if about.get("sha256") != _sha256(*tensors):
            raise ValueError("it was edited")
        keys, key_rows, values, value_rows, rules = tensors
        ids, texts = json.loads(bytes(rules.numpy()))
        if not (isinstance(ids, list) and isinstance(texts, list)):
            raise ValueError("its ids and texts are no lists")
        # Mapped privately: what is written to them is written to memory, page by page, and never to the file.
        values_at, keys_at = (each if len(each) else None for each in (value_rows, key_rows))
        encoder = about.get("encoder", "")
        bank = RuleBank(keys, values, ids, texts, encoder, values_at, keys_at, ours=True)
        bank.folder, bank.digest = path.parent, about["sha256"]
        return bank
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"the rule bank {path} is damaged ({error}); build or save it again") from error


def is_bank(folder: Path) -> bool:
    """Return whether a folder holds a bank."""
    return (folder / FILE).is_file()


def _write(bank: RuleBank, folder: Path) -> None:
    keys, values = (_stored(each) for each in (bank.keys, bank.values))
    with replaced(folder) as file:
        write_bank(
            file,
            ids=bank.ids,
            texts=bank.texts,
            encoder=bank.encoder,
            keys=keys,
            values=values,
        )


def _stored(rows: SharedRows) -> Stored:
    """Return what is written of a bank's keys or values: those that a rule has."""
    rules = torch.arange(rows.count, device=rows.different.device)
    at_M = rows.at(rules)
    used_U, at = at_M.unique(return_inverse=True) if rows.shared else (at_M, at_M[:0])
    parts = (rows.different[part] for part in used_U.split(65_536))
    shape = (len(used_U), rows.different.width)
    return Stored(StreamedTensor(rows.different.dtype, shape, parts), at)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yield where a bank's file is written; once it counts, what was an index of the one before goes."""
    with assembled(folder) as work:
        yield work / FILE
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


class StreamedTensor(NamedTuple):
    """A tensor of a file, that need not be in memory: dtype, shape, and its rows a few at a time."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    rows: Iterable[Tensor]


class Stored(NamedTuple):
    """Different embeddings, and which of them each rule has; nothing, where each has its own."""

    different: StreamedTensor
    at: Tensor


def write_bank(
    path: Path, *, ids: Sequence[str], texts: Sequence[str], encoder: str, keys: Stored, values: Stored
) -> None:
    """Write a bank's file as its rows come: a bank of gigabytes is never in memory."""
    rules = torch.frombuffer(bytearray(json.dumps([[*ids], [*texts]]).encode()), dtype=torch.uint8)
    key_rows, value_rows, told = (
        StreamedTensor(each.dtype, (*each.shape,), [each])
        for each in (keys.at.to("cpu", torch.int32), values.at.to("cpu", torch.int32), rules)
    )
    tensors = (keys.different, key_rows, values.different, value_rows, told)
    parts = dict(zip(TENSORS, tensors, strict=True))
    about = {"format": FORMAT, "encoder": encoder, "sha256": "0" * 64}
    digest, end = hashlib.sha256(), 0
    header: dict[str, Any] = {"__metadata__": about}
    for name, part in parts.items():
        start, end = end, end + math.prod(part.shape) * part.dtype.itemsize
        header[name] = {"dtype": _NAMES[part.dtype], "shape": [*part.shape], "data_offsets": [start, end]}
    with path.open("wb") as file:
        file.write(_header(header))
        for part in parts.values():
            digest.update(_told(part.dtype, part.shape))
            for rows in part.rows:
                block = _bytes(rows.detach().cpu())
                digest.update(block)
                file.write(block)
        about["sha256"] = digest.hexdigest()
        file.seek(0)
        file.write(_header(header))


def _header(header: dict[str, Any]) -> bytes:
    """Return the head of a safetensors file: its length in 8 bytes, and JSON, filled up to a multiple of 8."""
    body = json.dumps(header, separators=(",", ":")).encode()
    body += b" " * (-len(body) % 8)
    return len(body).to_bytes(8, "little") + body


def _sha256(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(_told(tensor.dtype, tensor.shape))
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _told(dtype: torch.dtype, shape: Sequence[int]) -> bytes:
    return f"{dtype} {tuple(shape)}".encode()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
