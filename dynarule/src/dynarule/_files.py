"""Files that are written whole or not at all, in folders that one process changes at a time; what weights hold.

What is being written is called ``.NAME.part``, beside NAME, and its writer holds a lock on it. The system lets go of
the lock when the writer is killed, and the next writer of NAME takes over what was left: no writer changes another's
part, and of no name there is ever more than one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PART = ".part"
"""How the hidden names of what is not whole yet end."""
SAVED = ".saved"
"""Files that belong together and are whole: they count, and are on their way into the folder around them."""


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, wait for whoever changes it, and finish what a killed `assembled` began."""
    with _folder_lock(folder):  # the system lets go of it when a process is killed
        _move_saved(folder)
        yield


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder for long: as `changing`, which this process may enter in the block, but do not wait.

    Raises
    ------
    ValueError
        If another process holds it.
    """
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
    with part_of(folder / "new", folder=True) as work:
        yield work
        for path in _files(work):
            _sync(path)
        work.replace(folder / SAVED)
        _move_saved(folder)


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


@contextmanager
def part_of(path: Path, folder: bool = False) -> Iterator[Path]:
    """Hold the empty file or folder that ``path`` is written as; what is left of it after the block is removed."""
    part = path.with_name(f".{path.name}{PART}")
    while True:
        if folder:
            part.mkdir(exist_ok=True)
        kind = os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT
        try:
            handle = os.open(part, kind | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            if not folder:
                raise
            continue  # another writer has renamed or removed it since it was made
        _lock(handle)
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


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Make an OSError of what safetensors and torch raise when a disk is full."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "SafetensorError" or "inline_container" in str(error):
            raise OSError(f"cannot write {path}: {str(error).splitlines()[0]}") from None
        raise


def _lock(handle: int) -> None:
    """Wait for a file or folder; on a file system that has no locks, two writers of one name must not meet."""
    with suppress(OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under a hidden name, have the system put it on disk, and rename it."""
    with part_of(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        _sync(part)
        part.replace(path)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a safetensors file, without reading it.

    Raises
    ------
    ValueError
        If the file is truncated.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) is truncated or not safetensors ({error}); copy the adapter again"
        ) from None
