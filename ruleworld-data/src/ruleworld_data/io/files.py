"""Files that are whole or not there: written under a temporary name of the process, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest as _digest
from pathlib import Path
from threading import get_ident


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; the file takes its place if all goes well, and is removed if not."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.tmp")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, body: bytes | str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part, also after a power cut."""
    with whole_file(path) as part, part.open("wb") as file:
        file.write(body.encode() if isinstance(body, str) else body)
        file.flush()
        os.fsync(file.fileno())


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return _digest(file, "sha256").hexdigest()
