"""Reading a submission's folder: regular files of known names and bounded size, and nothing else.

No path of a submission is ever followed: names are compared with a fixed list, links are refused, and compressed
data is read piece by piece up to a limit, so a small file cannot become a large one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from .refusals import Problem, Refused, shown

METADATA, RESULTS, SAMPLES = "metadata.yaml", "results.json", "samples.jsonl.zst"
KIB, MIB = 1 << 10, 1 << 20
LIMITS = {METADATA: 16 * KIB, RESULTS: MIB, SAMPLES: 16 * MIB}
"""Bytes at most of each file that a submission consists of."""
MAX_EXPANDED = 256 * MIB
MAX_LINE = MIB

FOLDER_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})_[a-z0-9]+([.-][a-z0-9]+)*")
MAX_NAME = 80


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a submission's three files.

    Raises
    ------
    Refused
        If the folder's name, a file's name, kind or size is not what a submission has.
    """
    check_folder_name(folder.name)
    if not stat.S_ISDIR(_lstat(folder).st_mode):
        raise Refused(
            Problem(shown(folder.name), "is not a folder", "hand in a real folder, no link and no file")
        )
    found = sorted(path.name for path in folder.iterdir())
    extra = [name for name in found if name not in LIMITS]
    missing = [name for name in LIMITS if name not in found]
    problems = [
        Problem(shown(name), "is not a file of a submission", f"remove it; only {', '.join(LIMITS)}")
        for name in extra[:5]
    ]
    problems += [
        Problem(name, "is missing", "write the folder with `rwbench submit RUN`") for name in missing
    ]
    if problems:
        raise Refused(*problems)
    return {name: _read(folder / name, limit) for name, limit in LIMITS.items()}


def check_folder_name(name: str) -> str:
    """Return the name if it is a date and a slug; raise `Refused` otherwise."""
    if len(name) > MAX_NAME or FOLDER_NAME.fullmatch(name) is None:
        raise Refused(
            Problem(
                "folder",
                "its name must be a date and a short name in a-z, 0-9, dot and hyphen",
                "call it for example 2026-01-31_my-method",
                value=shown(name),
            )
        )
    return name


def sample_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, line) of a zstd-compressed file of lines, in bounded memory.

    Raises
    ------
    Refused
        If it is not zstd, cut off, larger than `MAX_EXPANDED`, has a line longer than `MAX_LINE`, or does not end
        with a line break.
    """
    number, rest, total = 0, b"", 0
    for piece in _expanded(body):
        total += len(piece)
        if total > MAX_EXPANDED:
            raise Refused(
                Problem(SAMPLES, f"expands to more than {MAX_EXPANDED // MIB} MiB", "shorten the outputs")
            )
        *lines, rest = (rest + piece).split(b"\n")
        for line in (*lines, rest):
            if len(line) > MAX_LINE:
                raise Refused(
                    Problem(
                        SAMPLES, f"a line has more than {MAX_LINE // MIB} MiB", "shorten it", line=number + 1
                    )
                )
        for line in lines:
            number += 1
            yield number, line
    if rest:
        raise Refused(
            Problem(
                SAMPLES, "the last line has no line break: the file is cut off", "write it anew", number + 1
            )
        )


def compress(lines: bytes) -> bytes:
    """Return lines as a samples file holds them."""
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=19).compress(lines, asbytes=True)


def _expanded(body: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            while piece := stream.read(MIB):
                yield piece
    except (OSError, pa.ArrowException) as error:
        raise Refused(
            Problem(SAMPLES, "is not whole zstd data", "compress it with zstd", value=shown(str(error)))
        ) from None


def _read(path: Path, limit: int) -> bytes:
    # Looked at before it is opened: a pipe would block. Opened without following: it may have changed since.
    if not stat.S_ISREG(_lstat(path).st_mode):
        raise Refused(
            Problem(path.name, "is not a regular file", "hand in the file itself, no link, folder or pipe")
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        body = file.read(limit + 1)
    if len(body) > limit:
        raise Refused(
            Problem(
                path.name,
                f"is larger than {limit:,} bytes",
                "hand in one run, without what we do not ask for",
            )
        )
    return body


def _lstat(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no {path}; `rwbench submit RUN --to DIR` writes a submission"
        ) from None
