"""A bank as a folder with one safetensors file.

Its tensors are ``keys``, (U, P), and ``values``, (V, P), the different ones of each; ``key_rows`` and ``value_rows``,
(M,), the row of each rule, or (0,) where every rule has its own; and ``rules``, the bytes of two JSON arrays, ids and
texts, and of an object with the parts that owners say otherwise. Metadata: format, encoder, a hash of all tensors.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._files import changing, replacing
from .bank import RuleBank

FORMAT = "dynarule bank 4"
FILE = "bank.safetensors"
TENSORS = ("keys", "key_rows", "values", "value_rows", "rules")
_FLOATS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_NAMES = _FLOATS | {torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8"}


def is_bank(folder: Path) -> bool:
    """Return whether a folder holds a bank."""
    return (folder / FILE).is_file()


def check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that `save_bank` would refuse, before hours are spent on embeddings for it."""
    if is_bank(folder):
        if not overwrite:
            raise FileExistsError(
                f"{folder} exists already; choose a new folder, or overwrite it (--overwrite, overwrite=True)"
            )
    elif folder.is_file() or (folder.is_dir() and any(path.name[0] != "." for path in folder.iterdir())):
        raise ValueError(f"{folder} is not a rule bank (no {FILE}): not overwritten; choose a new folder")


def save_bank(bank: RuleBank, folder: str | PathLike[str], overwrite: bool = False) -> None:
    """Write a bank, whole or not at all; see `RuleBank.save`."""
    folder = Path(folder)
    check_place(folder, overwrite)
    with changing(folder):
        check_place(folder, overwrite)
        _write(bank, folder)


@contextmanager
def changed_bank(folder: str | PathLike[str], last: RuleBank | None = None) -> Iterator[RuleBank]:
    """Read a bank, change it in the block, and write it; no one else changes it meanwhile.

    The bank that this has yielded ``last`` is not read again while its file is the one that was written then.

    Examples
    --------
    >>> with changed_bank("bank") as bank:  # doctest: +SKIP
    ...     bank.remove(["12"])
    """
    if not is_bank(Path(folder)):
        load_bank(folder)  # says what is missing; no folder is made
    with changing(Path(folder)):
        same = last is not None and last.file == _identity(Path(folder) / FILE)
        bank = last if last is not None and same else load_bank(folder)
        bank.file = None
        yield bank
        _write(bank, Path(folder))
        bank.file = _identity(Path(folder) / FILE)


def load_bank(folder: str | PathLike[str]) -> RuleBank:
    """Read a bank; see `RuleBank.load`. Nothing is written, and no file is moved."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"no rule bank in {folder} (no {FILE}): dynarule bank build or RuleBank.save")
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
        if metadata.get("sha256") != hash_tensors(tensors):
            raise ValueError("it was edited")
        keys, key_rows, values, value_rows, rules = tensors
        ids, texts, *more = json.loads(bytes(rules.numpy()))
        if not (isinstance(ids, list) and isinstance(texts, list)):
            raise ValueError("its ids and texts are no lists")
        value_at, key_at = (rows if len(rows) else None for rows in (value_rows, key_rows))
        bank = RuleBank(keys, values, ids, texts, metadata.get("encoder", ""), value_at, key_at)
        (parts,) = more or [{}]
        bank.parts = {text: _two_texts(pair) for text, pair in parts.items()}
        if not parts.keys() <= {*texts}:
            raise ValueError("it holds parts of rules that it has not")
        return bank
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"the rule bank {path} is damaged ({error}); build or save it again") from error


def _two_texts(pair: Any) -> tuple[str, str]:
    """Return the premise and the conclusion that an owner says of a rule; a ValueError if they are none."""
    if not isinstance(pair, list) or [*map(type, pair)] != [str, str] or not pair[1].strip():
        raise ValueError(f"premise and conclusion of a rule are {pair!r:.60}")
    "".join(pair).encode()  # refuses half a surrogate pair, which no tokenizer reads
    return pair[0], pair[1]


def _write(bank: RuleBank, folder: Path) -> None:
    lists = [bank.ids, bank.texts, *([bank.parts] if bank.parts else [])]
    rules = torch.frombuffer(bytearray(json.dumps(lists).encode()), dtype=torch.uint8)
    parts, none = [], torch.empty(0, dtype=torch.int32)
    for side in (bank.keys.used(), bank.values.used()):
        parts += [side.different.detach().cpu(), none if side.at_M is None else side.at_M.cpu()]
    parts.append(rules)
    metadata = {"format": FORMAT, "encoder": bank.encoder, "sha256": hash_tensors(parts)}
    with replacing(folder / FILE) as part:
        write_tensors(part, dict(zip(TENSORS, parts, strict=True)), metadata)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file in place: of `save_file` metadata come in any order, and only the owner may read it."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
    body = json.dumps(header, separators=(",", ":")).encode()
    body += b" " * (-len(body) % 8)  # so that tensors begin at multiples of 8
    with path.open("wb") as file:
        file.write(len(body).to_bytes(8, "little") + body)
        for tensor in tensors.values():
            file.write(_bytes(tensor))


def hash_tensors(tensors: list[Tensor]) -> str:
    """Return the SHA-256 of tensors with their dtypes and shapes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
