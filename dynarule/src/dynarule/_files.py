"""Files that are written whole or not at all, in folders that one process changes at a time."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART = ".part"
"""How the hidden names of what is not whole yet end."""
SAVED = ".saved"
"""Files that belong together and are whole: they count, and are on their way into the folder around them."""


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, wait for whoever changes it, and clear away what killed writers left in it."""
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # the system lets go of it when a process is killed
        for path in folder.glob(f".*{PART}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _move_saved(folder)
        yield


def settle(folder: Path) -> None:
    """Finish what a killed `assembled` began; call it before files that belong together are read."""
    if (folder / SAVED).is_dir():
        with changing(folder):
            pass


@contextmanager
def assembled(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, whose files then move into a folder, in the block of `changing`: after a kill all or none.

    One rename makes them count; whoever comes next moves those that a kill left behind.
    """
    work = part_of(folder / "new")
    work.mkdir()
    try:
        yield work
        for path in _files(work):
            _sync(path)
        work.replace(folder / SAVED)
        _move_saved(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move_saved(folder: Path) -> None:
    if (folder / SAVED).is_dir():
        for path in _files(folder / SAVED):
            place = folder / path.relative_to(folder / SAVED)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        shutil.rmtree(folder / SAVED)


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder and in those below it: a tokenizer with several chat templates has one for them."""
    return [path for path in folder.rglob("*") if path.is_file()]


def _sync(path: Path) -> None:
    """Have the system put a file on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def part_of(path: Path) -> Path:
    """Return a hidden name beside a path, for no one else."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under a hidden name, have the system put it on disk, and rename it."""
    partial = part_of(path)
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        _sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
