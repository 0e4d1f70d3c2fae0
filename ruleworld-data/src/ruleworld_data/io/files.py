"""Files and folders that are whole or not there.

What is being written is called ``.NAME.part``, beside NAME, and its writer holds a lock on it. The system lets go of
the lock when the writer is killed, and the next writer of NAME takes over what was left: no writer changes another's
part, and of no name there is ever more than one.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest as _digest
from pathlib import Path

PART = ".part"


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
        with suppress(OSError):  # on a file system that has no locks, two writers of one name must not meet
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, part):
            if folder or os.fstat(handle).st_nlink == 1:
                break
            part.unlink()  # a hard link, so what is written would be in another file, too
        os.close(handle)  # the writer that was waited for has renamed or removed it
    try:
        for left in part.iterdir() if folder else ():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        if not folder:
            os.truncate(handle, 0)
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
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; the file takes its place if all goes well, and is removed if not.

    Writers of one path take turns from here on, so what is read of ``path`` in the block is what it replaces.
    """
    with part_of(path) as part:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``path`` if all goes well, and is removed if not.

    Raises
    ------
    FileExistsError
        If there is something in ``path``, once whoever else writes it has, and it is not to be replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_of(path, folder=True) as part:
        if not replace and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FileExistsError(f"{path} exists already; choose a new folder")
        yield part
        if replace and path.exists():
            shutil.rmtree(path)
        part.replace(path)


def write_whole(path: Path, body: bytes | str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part, also after a power cut."""
    with whole_file(path) as part:
        part.write_bytes(body.encode() if isinstance(body, str) else body)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return _digest(file, "sha256").hexdigest()
