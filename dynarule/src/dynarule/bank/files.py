"""A bank as a folder with one safetensors file, so that one rename replaces it.

The tensors are ``keys`` and ``values``, (M, P), and ``rules``, the bytes of two JSON arrays, ids and texts; the
metadata have format, encoder, and a hash of the three.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from .._files import assembled, changing, settle
from .bank import RuleBank

FORMAT = "dynarule bank 2"
FILE = "bank.safetensors"


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
            keys, values, rules = (file.get_tensor(name) for name in ("keys", "values", "rules"))
        if about.get("format") != FORMAT:
            raise ValueError(f"it has format {about.get('format')!r}, this version reads {FORMAT!r}")
        if about.get("sha256") != _sha256(keys, values, rules):
            raise ValueError("it was edited")
        ids, texts = json.loads(bytes(rules.numpy()))
        if not (isinstance(ids, list) and isinstance(texts, list)):
            raise ValueError("its ids and texts are no lists")
        return RuleBank(keys, values, ids, texts, about.get("encoder", ""))
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"the rule bank {path} is damaged ({error}); build or save it again") from error


def is_bank(folder: Path) -> bool:
    """Return whether a folder holds a bank."""
    return (folder / FILE).is_file()


def _write(bank: RuleBank, folder: Path) -> None:
    from safetensors.torch import save_file

    rules = bytearray(json.dumps([bank.ids, bank.texts]).encode())
    tensors = {
        "keys": bank.keys_MP.detach().cpu().contiguous(),
        "values": bank.values_MP.detach().cpu().contiguous().clone(),  # may share the keys' memory
        "rules": torch.frombuffer(rules, dtype=torch.uint8),
    }
    about = {"format": FORMAT, "encoder": bank.encoder, "sha256": _sha256(*tensors.values())}
    with assembled(folder) as work:
        save_file(tensors, work / FILE, about)


def _sha256(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
