"""samples.jsonl: one line per question, appended and flushed, safe to kill at any byte.

A line is one JSON object with these keys, all of them always there:

``id``, ``subtask``, ``world_id``, ``fold``
    The question.
``output``
    The raw text that the answers were read from; null if the method writes none.
``answers``, ``gold_answers``
    Lists of strings, one per sub-question; ``answers`` is null if the method does not answer.
``retrieved``
    What recall is computed from: rule ids per step, best first (a method that searches once has one step); null
    if the method retrieves nothing.
``gold_rules``
    Gold rule ids per step.
``scores``
    Metric -> value; empty if the question failed.
``outcome``
    How it ended, one of `OUTCOMES`.
``trace``
    What the method did, in order: a list of ``{"query": str or null, "retrieved": [rule ids], "text": str or null}``.
    A step searches (``query``, ``retrieved``), writes (``text``), or both. Empty for a method that searches once
    and for one that only writes: their step is in ``retrieved`` and ``output`` already.
``measures``
    What an analysis measured on the question, name -> numbers; empty for all other methods. ``rule_entropy``: nats by
    layer, mean over heads and question tokens; ``rule_layers``: the 0-based layers of that list; ``rule_attention``:
    one row per retrieval step, one column per gold rule in step order (all rules weigh 1 together);
    ``rule_attention_step``: the gold step of each column.
``usage``
    What the question cost: ``calls`` of the model, ``prompt_tokens``, ``completion_tokens``, ``retrievals``,
    ``cost_usd`` where the price is known, ``cached_calls`` answered from disk, and ``seconds``, an object stage ->
    seconds (``retrieve``, ``generate``; ``tokenize`` of prompts that turn out not to fit). Of iterative methods also
    ``rounds`` of ``round_budget``, whether the method ``finished`` by itself (0 or 1), and ``bad_actions`` that could
    not be read. What a method has no number for is not there. Questions that are answered in one batch share its
    seconds evenly.
``seconds``
    Wall time from the sample before to this one; a batch's time falls on its first question.
``error``
    Why the question failed, else null. Failed questions are asked again when the run is taken up again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..spec import canonical_json

OUTCOMES = {
    "ok": "ended as the method should: with an answer in a box, or with the rules it was asked to find",
    "context_exceeded": "prompt and answer do not fit the model's context; not asked, no answer, scored 0",
    "length": "the answer was cut off at the token limit before a box was closed",
    "refused_format": "the answer ended without a box: prose, another format or another language",
    "no_output": "the model answered with no text (filtered, or all tokens spent on thinking)",
    "budget_exhausted": "an iterative method used up its rounds without finishing by itself",
    "failed": "no answer because of an error (see `error`); not scored, asked again on resume",
}
"""Every value of ``outcome`` and what it means. Where several fit, the first in this order after ``ok`` counts."""

SAMPLES_FILE = "samples.jsonl"
PACKED_FILE = "samples.jsonl.zst"
"""What `rwbench report --pack` leaves of it; read wherever the file itself is missing."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

VOLATILE = ("seconds",)
VOLATILE_USAGE = ("seconds", "cached_calls")
"""Fields of a sample, and of its usage, that differ between two runs of a spec; `samples_sha256` leaves them out."""

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


def samples_file(folder: Path) -> Path | None:
    """Return the samples of a run's folder, as written or compressed; None if there are none."""
    return next((path for name in (SAMPLES_FILE, PACKED_FILE) if (path := folder / name).is_file()), None)


def compressed(samples: Sequence[Sample]) -> bytes:
    """Return samples as `PACKED_FILE` holds them."""
    import pyarrow as pa

    body = "".join(map(_line, samples)).encode()
    return bytes(pa.Codec("zstd", compression_level=19).compress(body, asbytes=True))


def read_samples(path: Path) -> list[Sample]:
    """Return the whole lines of a samples file, without the torn last line of a killed run.

    Parameters
    ----------
    path : Path
        ``samples.jsonl`` of a run, or its compressed form; where the first is missing, the one beside it is read.

    Raises
    ------
    ValueError
        If any line but a torn last one is not a sample: the file was changed by something else.
    """
    found = path if path.is_file() else samples_file(path.parent)
    if found is None:
        return []
    *lines, _torn = _whole(found).split(b"\n")
    samples = []
    for number, line in enumerate(lines, 1):
        try:
            sample = json.loads(line)
            sample["id"], sample["error"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{found} line {number} is not a sample: {line[:60]!r}; delete the line and run again to redo it"
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
        usage = sample.get("usage", {})
        stable["usage"] = {name: value for name, value in usage.items() if name not in VOLATILE_USAGE}
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


def _whole(path: Path) -> bytes:
    if path.name != PACKED_FILE:
        return path.read_bytes()
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.memory_map(str(path)), "zstd") as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException) as error:
        raise ValueError(
            f"{path} is not whole zstd data ({error}); pack the runs again: rwbench report RUNS --pack FOLDER"
        ) from None


def _line(sample: Sample) -> str:
    return canonical_json(sample) + "\n"
