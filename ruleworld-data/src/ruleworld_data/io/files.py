"""Files and folders that are whole or not there.

What is being written is called ``.NAME.*.part``, beside NAME. What a killed writer leaves is removed a day later, by
whoever writes NAME then.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from hashlib import file_digest as _digest
from pathlib import Path

PART = ".part"
STALE = 86_400  # seconds


@contextmanager
def part_of(path: Path, folder: bool = False) -> Iterator[Path]:
    """Yield an empty file or folder that ``path`` is written as; what is left of it after the block is removed."""
    for left in path.parent.glob(f".{escape(path.name)}.*{PART}"):
        with suppress(FileNotFoundError):  # its writer has renamed it, or another one removed it
            if time.time() - left.lstat().st_mtime > STALE:
                _remove(left)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    part.mkdir() if folder else part.touch(exist_ok=False)
    try:
        yield part
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``path`` if all goes well, and is removed if not.

    Raises
    ------
    FileExistsError
        If there is something in ``path``, and it is not to be replaced.
    """
    if not replace and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists already; choose a new folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_of(path, folder=True) as part:
        yield part
        if replace and path.exists():
            shutil.rmtree(path)
        part.replace(path)


def write_whole(path: Path, body: bytes | str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part, also after a power cut."""
    with part_of(path) as part:
        with part.open("wb") as file:
            file.write(body.encode() if isinstance(body, str) else body)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return _digest(file, "sha256").hexdigest()
