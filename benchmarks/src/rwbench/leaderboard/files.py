"""Files of a submission: two regular files of known names and bounded size, and nothing else.

No path of a submission is ever followed: names are compared with a fixed list, links are refused, and compressed
data is read piece by piece up to a limit, so a small file cannot become a large one.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from .problems import Refused, quote

ENTRY, SAMPLES = "submission.json", "samples.jsonl.zst"
KIB, MIB = 1 << 10, 1 << 20
LIMITS = {ENTRY: 32 * KIB, SAMPLES: 16 * MIB}
"""Bytes at most of each file that a submission consists of."""
MAX_EXPANDED = 64 * MIB
MAX_LINE = MIB
FOLDER_NAME = re.compile(r"(?=.{12,80}$)[0-9]{4}-[0-9]{2}-[0-9]{2}_[a-z0-9]+([.-][a-z0-9]+)*")
"""Lower case, so that no two names differ in case only; no control characters, no path."""
HOW_TO_WRITE = "write the folder with `rwbench submit RUN`"


def submission_folders(root: Path) -> list[Path]:
    """Return the submissions' folders in a folder of submissions; other files in it are ignored."""
    return (
        sorted(path for path in root.iterdir() if FOLDER_NAME.fullmatch(path.name)) if root.is_dir() else []
    )


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a submission's files; `Refused` if a name, kind or size is not what one has."""
    if not FOLDER_NAME.fullmatch(folder.name):
        what = "its name must be a date and a short name in a-z, 0-9, dot and hyphen, at most 80 characters"
        raise Refused(f"folder: {what}, got {quote(folder.name)}; for example 2026-11-28_my-method")
    if folder.is_symlink() or not folder.is_dir():
        raise Refused(f"{folder.name}: is not a folder; submit a real folder, no link and no file")
    names = {path.name for path in folder.iterdir()}
    problems = [
        f"{quote(name)}: is not a file of a submission; only {', '.join(LIMITS)}"
        for name in sorted(names - LIMITS.keys())
    ]
    problems += [f"{name}: is missing; {HOW_TO_WRITE}" for name in LIMITS if name not in names]
    if problems:
        raise Refused(*problems)
    return {name: _read(folder / name, limit) for name, limit in LIMITS.items()}


def sample_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, line) of a zstd-compressed file of lines, in bounded memory.

    `Refused` if it is cut off, larger than `MAX_EXPANDED`, has a line longer than `MAX_LINE`, or no last line break.
    """
    import pyarrow as pa

    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            lines = io.BufferedReader(stream, MIB)
            for number in count(1):
                line = lines.readline(MAX_LINE + 1)
                if not line:
                    return
                place, total = f"{SAMPLES}, line {number}", total + len(line)
                if total > MAX_EXPANDED:
                    raise Refused(
                        f"{place}: expands to more than {MAX_EXPANDED // MIB} MiB; shorten the outputs"
                    )
                if len(line) > MAX_LINE:
                    raise Refused(f"{place}: a line has more than {MAX_LINE // MIB} MiB; shorten it")
                if not line.endswith(b"\n"):
                    raise Refused(f"{place}: has no line break, so the file is cut off; write the file again")
                yield number, line[:-1]
    except (OSError, pa.ArrowException) as error:
        what = f"is not whole zstd data, got {quote(str(error))}"
        raise Refused(f"{SAMPLES}: {what}; compress it with zstd") from None


def packed(lines: bytes) -> bytes:
    """Return lines as a submission's samples hold them."""
    import pyarrow as pa

    return bytes(pa.Codec("zstd", compression_level=19).compress(lines, asbytes=True))


def json_bytes(value: Any) -> bytes:
    """Return indented JSON with a line break at its end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _read(path: Path, limit: int) -> bytes:
    try:
        # A link is not followed, and a pipe not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            body = file.read(limit + 1) if plain else b""
    except OSError:
        plain, body = False, b""
    if not plain:
        raise Refused(
            f"{path.name}: is not a regular file; submit the file itself, no link, folder or pipe"
        ) from None
    if len(body) > limit:
        raise Refused(f"{path.name}: is larger than {limit:,} bytes; submit one run and nothing else")
    return body
