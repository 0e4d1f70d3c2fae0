"""Files of a submission: two regular files of known names and bounded size, and nothing else.

No path of a submission is ever followed: names are compared with a fixed list, links are refused, and compressed
data is read piece by piece up to a limit, so a small file cannot become a large one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from .parsing import Problem, quote, refuse, refuse_if

ENTRY, SAMPLES = "submission.json", "samples.jsonl.zst"
KIB, MIB = 1 << 10, 1 << 20
LIMITS = {ENTRY: 32 * KIB, SAMPLES: 16 * MIB}
"""Bytes at most of each file that a submission consists of."""
MAX_EXPANDED = 64 * MIB
MAX_LINE = MIB
SUBMISSIONS = "benchmarks/leaderboard/submissions"
"""Folder of submissions in the repository."""
PLAIN_FILE = "100644"
"""git's mode of a file that is no link, no program and no submodule."""
DIFF_ENTRY = re.compile(r":[0-7]{6} ([0-7]{6}) [0-9a-f]+(?:\.{3})? [0-9a-f]+(?:\.{3})? [A-Z][0-9]*")
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
        refuse("folder", what, "for example 2026-01-31_my-method", value=quote(folder.name))
    if not stat.S_ISDIR(_lstat(folder).st_mode):
        refuse(quote(folder.name), "is not a folder", "submit a real folder, no link and no file")
    names = sorted(path.name for path in folder.iterdir())
    only = f"only {', '.join(LIMITS)}"
    refuse_if(
        [Problem(quote(name), "is not a file of a submission", only) for name in names if name not in LIMITS]
        + [Problem(name, "is missing", HOW_TO_WRITE) for name in LIMITS if name not in names]
    )
    return {name: _read(folder / name, limit) for name, limit in LIMITS.items()}


def sample_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, line) of a zstd-compressed file of lines, in bounded memory.

    `Refused` if it is cut off, larger than `MAX_EXPANDED`, has a line longer than `MAX_LINE`, or no last line break.
    """
    number, rest, total = 1, b"", 0
    for piece in _expanded(body):
        total += len(piece)
        if total > MAX_EXPANDED:
            refuse(SAMPLES, f"expands to more than {MAX_EXPANDED // MIB} MiB", "shorten the outputs")
        *lines, rest = (rest + piece).split(b"\n")
        for line in [*lines, rest]:
            if len(line) > MAX_LINE:
                refuse(SAMPLES, f"a line has more than {MAX_LINE // MIB} MiB", "shorten it", number)
        for line in lines:
            yield number, line
            number += 1
    if rest:
        what = "the last line has no line break: the file is cut off"
        refuse(SAMPLES, what, "write the file again", number)


def added_submissions(changed: bytes, head: Path, base: Path | None = None) -> list[Path]:
    """Return the folders of the submissions that a pull request adds.

    Parameters
    ----------
    changed : bytes
        The pull request's files, as ``git diff --raw --no-renames -z`` gives them.
    head, base : Path
        Checkouts of the pull request, only looked at, and of main, to tell new folders from old ones.

    Raises
    ------
    Refused
        If submissions come together with other changes, a path is not that of a file of a submission, a file is not
        a plain one (mode 100644: no link, no program, no submodule), or a submission that is on the board is changed.
    """
    place = head / SUBMISSIONS
    problems = []
    names: dict[str, None] = {}
    fields = changed.decode("utf-8", "surrogateescape").split("\0")
    entries = [DIFF_ENTRY.fullmatch(header) for header in fields[0:-1:2]]
    if fields[-1] or len(fields) % 2 == 0 or not all(entries):
        refuse("pull request", "its list of files is damaged", "give git diff --raw --no-renames -z")
    for entry, path in zip(entries, fields[1::2], strict=True):
        folder, _, file = path.removeprefix(f"{SUBMISSIONS}/").partition("/")
        mode = entry[1] if entry else ""
        is_ours = path == f"{SUBMISSIONS}/{folder}/{file}" and FOLDER_NAME.fullmatch(folder)
        if not is_ours or file not in LIMITS:
            fix = f"a pull request with a submission adds folders to {SUBMISSIONS} and nothing else"
            problems.append(Problem(quote(path), "is not a file of a submission", fix))
        elif mode != PLAIN_FILE:
            fix = f"commit the file itself, with mode {PLAIN_FILE}"
            problems.append(Problem(quote(path), "is not a plain file", fix, value=f"mode {mode}"))
        names[folder] = None
    if place.resolve() != head.resolve() / SUBMISSIONS:
        problems.append(Problem(SUBMISSIONS, "is a link", "submit real folders"))
    for name in names:
        if base is not None and os.path.lexists(base / SUBMISSIONS / name):
            fix = "add a new folder: what is on the board stays as it is"
            problems.append(Problem(quote(name), "is on the board already", fix))
    refuse_if(problems)
    return [place / name for name in names]


def packed(lines: bytes) -> bytes:
    """Return lines as a submission's samples hold them."""
    import pyarrow as pa

    return bytes(pa.Codec("zstd", compression_level=19).compress(lines, asbytes=True))


def _expanded(body: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            while piece := stream.read(MIB):
                yield piece
    except (OSError, pa.ArrowException) as error:
        refuse(SAMPLES, "is not whole zstd data", "compress it with zstd", value=quote(str(error)))


def _read(path: Path, limit: int) -> bytes:
    # Checked before it is opened: a pipe would block. Opened without following: it may have changed since.
    if not stat.S_ISREG(_lstat(path).st_mode):
        refuse(path.name, "is not a regular file", "submit the file itself, no link, folder or pipe")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        body = file.read(limit + 1)
    if len(body) > limit:
        refuse(path.name, f"is larger than {limit:,} bytes", "submit one run and nothing else")
    return body


def _lstat(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except FileNotFoundError:
        raise FileNotFoundError(f"no {path}; `rwbench submit RUN --to DIR` writes a submission") from None
