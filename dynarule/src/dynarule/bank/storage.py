"""A bank as a folder with one safetensors file.

Its tensors are ``keys``, (U, P), and ``values``, (V, P), the different ones of each; ``key_rows`` and ``value_rows``,
(M,), the row of each rule, or (0,) where every rule has its own; and ``rules``, the bytes of two JSON arrays, ids and
texts. The metadata hold format, encoder, and a hash of all tensors.
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

from .._files import changing, replacing
from .bank import RuleBank
from .rows import SharedRows

FORMAT = "dynarule bank 4"
FILE, INDEX_FOLDER = "bank.safetensors", "index"
TENSORS = ("keys", "key_rows", "values", "value_rows", "rules")
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint8: "U8",
}


class StreamedTensor(NamedTuple):
    """A tensor to write that need not be in memory: its rows come a block at a time."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Iterable[Tensor]


class Stored(NamedTuple):
    """Different embeddings, and the row of each rule among them; no rows where every rule has its own."""

    different: StreamedTensor
    at: Tensor


def save_bank(bank: RuleBank, folder: str | PathLike[str], overwrite: bool = False) -> None:
    """Write a bank, whole or not at all; see `RuleBank.save`."""
    folder = Path(folder)
    check_place(folder, overwrite)
    with changing(folder):
        check_place(folder, overwrite)
        _write(bank, folder)


def check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that `save_bank` would refuse, before hours are spent on embeddings for it."""
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
    """Read a bank; see `RuleBank.load`. Nothing is written, and no file is moved."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"no rule bank in {folder} (no {FILE}): dynarule bank build, or RuleBank.save"
        )
    while True:
        before = _identity(path)
        try:
            return _read(path)
        except ValueError:
            # safetensors opens a file twice, by name; in between another process may have put a new one there
            if _identity(path) == before:
                raise


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path) -> RuleBank:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"it has format {metadata.get('format')!r}, this version reads {FORMAT!r}")
            tensors = [file.get_tensor(name) for name in TENSORS]
        if metadata.get("sha256") != _sha256(*tensors):
            raise ValueError("it was edited")
        keys, key_rows, values, value_rows, rules = tensors
        ids, texts = json.loads(bytes(rules.numpy()))
        if not (isinstance(ids, list) and isinstance(texts, list)):
            raise ValueError("its ids and texts are no lists")
        # mapped privately: what is written to them goes to memory, page by page, and never to the file
        value_at, key_at = (rows if len(rows) else None for rows in (value_rows, key_rows))
        bank = RuleBank(keys, values, ids, texts, metadata.get("encoder", ""), value_at, key_at, owned=True)
        bank.folder, bank.digest = path.parent, metadata["sha256"]
        return bank
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"the rule bank {path} is damaged ({error}); build or save it again") from error


def is_bank(folder: Path) -> bool:
    """Return whether a folder holds a bank."""
    return (folder / FILE).is_file()


def _write(bank: RuleBank, folder: Path) -> None:
    with replaced(folder) as file:
        write_bank(file, bank.ids, bank.texts, bank.encoder, _stored(bank.keys), _stored(bank.values))


def _stored(rows: SharedRows) -> Stored:
    """Return the embeddings that some rule has."""
    at_M = rows.at(torch.arange(rows.count, device=rows.different.device))
    used_U, at = at_M.unique(return_inverse=True) if rows.shared else (at_M, at_M[:0])
    blocks = (rows.different[part] for part in used_U.split(65_536))
    return Stored(StreamedTensor(rows.different.dtype, (len(used_U), rows.different.width), blocks), at)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yield where a bank's file is written; once it counts, the index of the bank before goes."""
    with replacing(folder / FILE) as part:
        yield part
    shutil.rmtree(folder / INDEX_FOLDER, ignore_errors=True)


def write_bank(
    path: Path, ids: Sequence[str], texts: Sequence[str], encoder: str, keys: Stored, values: Stored
) -> None:
    """Write a bank's file as its rows come: a bank of gigabytes is never in memory."""
    rules = torch.frombuffer(bytearray(json.dumps([[*ids], [*texts]]).encode()), dtype=torch.uint8)
    key_rows, value_rows, rule_bytes = (
        StreamedTensor(tensor.dtype, tuple(tensor.shape), [tensor])
        for tensor in (keys.at.to("cpu", torch.int32), values.at.to("cpu", torch.int32), rules)
    )
    parts = (keys.different, key_rows, values.different, value_rows, rule_bytes)
    metadata = {"format": FORMAT, "encoder": encoder, "sha256": "0" * 64}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, part in zip(TENSORS, parts, strict=True):
        start, end = end, end + math.prod(part.shape) * part.dtype.itemsize
        header[name] = {"dtype": _NAMES[part.dtype], "shape": [*part.shape], "data_offsets": [start, end]}
    digest = hashlib.sha256()
    with path.open("wb") as file:
        file.write(_header(header))
        for part in parts:
            digest.update(f"{part.dtype} {part.shape}".encode())
            for rows in part.blocks:
                block = _bytes(rows.detach().cpu())
                digest.update(block)
                file.write(block)
        metadata["sha256"] = digest.hexdigest()  # as long as the zeros
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
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
