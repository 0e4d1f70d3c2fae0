"""samples.jsonl: one line per question, appended and flushed, safe to kill at any byte."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .spec import canonical_json

VOLATILE = ("seconds",)
"""Fields of a sample that differ between two runs of the same spec; `samples_sha256` leaves them out."""

Sample = dict[str, Any]


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process alone.

    Raises
    ------
    ValueError
        If another process is writing to the folder.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another process is running {folder}; wait for it or stop it") from None
        yield


def read_samples(path: Path) -> list[Sample]:
    """Return the whole lines of a samples file, without the torn last line of a killed run.

    Raises
    ------
    ValueError
        If any line but a torn last one is not a sample: the file was changed by something else.
    """
    if not path.is_file():
        return []
    *lines, _torn = path.read_bytes().split(b"\n")
    samples = []
    for number, line in enumerate(lines, 1):
        try:
            sample = json.loads(line)
            sample["id"], sample["error"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path} line {number} is not a sample: {line[:60]!r}; delete the line and run again to redo it"
            ) from None
        samples.append(sample)
    return samples


class SampleLog:
    """Appends samples to a run's file and knows which questions are done.

    Opening repairs the file: a torn last line goes, failed questions go (they are asked again), and so does a
    second line of the same question. The repair is written beside the file and renamed, so a kill here loses
    nothing either.

    Parameters
    ----------
    path : Path
        ``samples.jsonl`` of the run; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        kept: dict[str, Sample] = {}
        for sample in read_samples(path):
            if sample["error"] is None:
                kept.setdefault(sample["id"], sample)
        self.done = set(kept)
        body = "".join(_line(sample) for sample in kept.values()).encode()
        if not path.is_file() or path.read_bytes() != body:
            write_whole(path, body)
        self._file: IO[bytes] = path.open("ab")

    def append(self, sample: Sample) -> None:
        """Write one sample and hand it to the operating system before returning."""
        self._file.write(_line(sample).encode())
        self._file.flush()
        if sample["error"] is None:
            self.done.add(sample["id"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SampleLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def samples_sha256(samples: list[Sample]) -> str:
    """Return a hash of the samples by id, timing left out: what two runs of one spec must agree on."""
    digest = hashlib.sha256()
    for sample in sorted(samples, key=lambda sample: sample["id"]):
        stable = {name: value for name, value in sample.items() if name not in VOLATILE}
        digest.update(_line(stable).encode())
    return digest.hexdigest()


def write_whole(path: Path, body: bytes) -> None:
    """Replace a file in one step: readers see the old bytes or the new ones, never a part."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _line(sample: Sample) -> str:
    return canonical_json(sample) + "\n"
