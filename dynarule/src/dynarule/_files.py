"""Files that are written whole or not at all, in folders that one process changes at a time.

What is being written is called ``.NAME.part``, beside NAME, and its writer holds a lock on it, which the system
releases when the writer is killed: the next writer of NAME takes over what was left.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PART = ".part"
SAVED = ".saved"
"""Folder of files that belong together and are complete, on their way into the folder around it."""


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, wait for whoever changes it, and finish what a killed `assembled` began."""
    with _folder_lock(folder):
        _move_saved(folder)
        yield


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """As `changing`, but for long, and a ValueError instead of a wait; `changing` may be entered inside."""
    from filelock import Timeout

    lock = _folder_lock(folder)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another process is running {folder}; wait for it or stop it") from None
    try:
        with changing(folder):
            yield
    finally:
        lock.release()


def _folder_lock(folder: Path) -> Any:
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock", is_singleton=True)  # the same process may hold it twice


def refuse_unfinished(folder: Path) -> None:
    """Wait while a writer moves files that belong together; raise ValueError if one was killed while it did.

    Call it before such files are read. Reading itself never finishes a save: the folder may be a stranger's.
    """
    while (folder / SAVED).is_dir() and _is_locked(folder):
        time.sleep(0.01)
    if os.path.lexists(folder / SAVED):
        raise ValueError(
            f"the last save into {folder} was interrupted, and its files are in {folder / SAVED}; save or train into "
            f"{folder} again, which completes it, or delete {folder / SAVED} to keep the files of before"
        )


def _is_locked(folder: Path) -> bool:
    import fcntl

    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


@contextmanager
def assembled(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose files then move into ``folder``, all or none; inside `changing`.

    One rename makes them count; after a kill the next writer moves what is left.
    """
    with part_of(folder / "new", folder=True) as work:
        yield work
        for path in work.rglob("*"):  # a tokenizer with several chat templates has a folder of them
            if path.is_file():
                path.chmod(work.stat().st_mode & 0o666)  # safetensors lets nobody but the owner read
                _sync(path)
        work.replace(folder / SAVED)
        _move_saved(folder)


def _move_saved(folder: Path) -> None:
    saved = folder / SAVED
    if not os.path.lexists(saved):
        return
    moves = [(path, folder / path.relative_to(saved)) for path in sorted(saved.rglob("*"))]
    # whoever plants a link could have files moved out of the folder, or over others
    if links := [path for path in (saved, *(p for move in moves for p in move)) if path.is_symlink()]:
        raise ValueError(f"{links[0]} is a link, so the save into {folder} cannot be finished; remove it")
    for path, place in moves:  # sorted: a folder before what is in it
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            path.replace(place)
    shutil.rmtree(saved)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def part_of(path: Path, folder: bool = False) -> Iterator[Path]:
    """Hold the empty file or folder that ``path`` is written as; what is left of it after the block is removed."""
    part = path.with_name(f".{path.name}{PART}")
    kind = os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT
    while True:
        if folder:
            part.mkdir(exist_ok=True)
        try:
            handle = os.open(part, kind | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            if not folder:
                raise
            continue  # another writer has renamed or removed it since it was made
        with suppress(OSError):  # a file system without locks: two writers of one name must not meet there
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, part):
            break
        os.close(handle)  # the writer that was waited for has renamed or removed it
    try:
        for left in part.iterdir() if folder else ():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        if not folder:
            os.truncate(handle, 0)
        with disk_errors(path):
            yield part
    finally:
        if _is_at(handle, part):
            shutil.rmtree(part) if folder else part.unlink()
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Make an OSError of what safetensors and torch raise when a disk is full."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "SafetensorError" or "inline_container" in str(error):
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
    from safetensors import SafetensorError, safe_open

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
