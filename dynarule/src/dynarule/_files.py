"""Files that are written whole or not at all, in folders that one process changes at a time.

What is being written is called ``.NAME.*.part``, beside NAME; a later writer removes what a killed one left a day ago.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

PART = ".part"
STALE = 86_400  # seconds


def changing(folder: Path) -> Any:
    """Return the lock of who changes a folder, as a context that waits for it; the folder is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    refuse_link(folder / ".lock")
    return FileLock(folder / ".lock", is_singleton=True)  # the same process may hold it twice


def refuse_link(path: Path) -> None:
    """Raise ValueError if a path, of a folder that may be a stranger's, leads elsewhere."""
    if path.is_symlink() or (path.is_file() and path.stat().st_nlink > 1):
        raise ValueError(f"{path} is a link, so what is written there would be elsewhere; remove it")


def exclusive(folder: Path) -> Any:
    """Return the same, held already, and for long; a ValueError instead of a wait."""
    try:
        return changing(folder).acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another process is running {folder}; wait for it or stop it") from None


@contextmanager
def assembled(folder: Path, last: str) -> Iterator[Path]:
    """Yield an empty folder whose files then replace those of the same name in ``folder``; inside `changing`.

    ``last`` names the file without which the others mean nothing: it is the first to go and the last to come, so a kill
    in between leaves a folder that says it is not whole, never files of two saves.
    """
    with part_of(folder / "new", folder=True) as work:
        yield work
        for path in work.rglob("*"):
            if path.is_file():
                path.chmod(work.stat().st_mode & 0o666)  # safetensors lets nobody but the owner read
                _sync(path)
        (folder / last).unlink(missing_ok=True)
        for path in sorted(work.iterdir(), key=lambda path: path.name == last):
            place = folder / path.name
            if place.is_dir():  # a tokenizer with several chat templates has one; a link is refused
                shutil.rmtree(place)
            path.replace(place)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def part_of(path: Path, folder: bool = False) -> Iterator[Path]:
    """Yield an empty file or folder that ``path`` is written as; what is left of it after the block is removed."""
    for left in path.parent.glob(f".{path.name}.*{PART}"):
        with suppress(FileNotFoundError):  # another writer has renamed it, or removed it as well
            if time.time() - left.lstat().st_mtime > STALE:
                _remove(left)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    part.mkdir() if folder else part.touch(exist_ok=False)
    try:
        with disk_errors(path):
            yield part
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Make an OSError of what safetensors and torch raise when a disk is full."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SafetensorError) or "inline_container" in str(error):
            raise OSError(f"cannot write {path}: {str(error).splitlines()[0]}") from None
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the hidden file that is put on disk and renamed to ``path`` after the block."""
    with part_of(path) as part:
        yield part
        _sync(part)
        part.replace(path)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of an adapter's weights; ValueError if they are truncated or no floats."""
    try:
        with safe_open(path, "pt") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            dtypes = {part.get_dtype() for part in parts.values()}
            shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) is truncated or not safetensors ({error}); copy the adapter again"
        ) from None
    if others := dtypes - {"F64", "F32", "F16", "BF16"}:
        raise ValueError(
            f"{path} holds {', '.join(sorted(others))}; expected F32, F16 or BF16: save the adapter again"
        )
    return shapes
