"""Files of a submission: two plain files of known names and bounded size, and nothing else."""

import re
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from ..spec import in_words

ENTRY, SAMPLES = "submission.json", "samples.jsonl.zst"
KIB, MIB = 1 << 10, 1 << 20
LIMITS = {ENTRY: 32 * KIB, SAMPLES: 16 * MIB}
"""Bytes at most of each file that a submission consists of."""
MAX_EXPANDED = 64 * MIB
FOLDER_NAME = re.compile(r"(?=.{12,80}$)[0-9]{4}-[0-9]{2}-[0-9]{2}_[a-z0-9]+([.-][a-z0-9]+)*")
"""Lower case, so that no two names differ in case only; no control characters, no path."""
HOW_TO_WRITE = "write the folder with `rwbench submit RUN WORDS.toml`"

Model = TypeVar("Model", bound=BaseModel)


class Refused(ValueError):
    """A submission was refused: a problem a line, each with its place, the value seen and what to do about it."""


def quote(value: Any) -> str:
    """Return a value as one short line of printable ASCII, safe for a terminal."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text):,} characters)"


def validated(model: type[Model], body: bytes, place: str) -> Model:
    """Return a JSON text as a model; `Refused` names file, line, field and value."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refused(f"{place}: {ascii(in_words(error))[1:-1]}; {HOW_TO_WRITE}") from None


def submission_folders(root: Path) -> list[Path]:
    """Return the submissions' folders in a folder of submissions; other files in it are ignored."""
    return sorted(path for path in root.glob("*") if FOLDER_NAME.fullmatch(path.name))


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a submission's files; `Refused` if a name, kind or size is not what one has."""
    if not FOLDER_NAME.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        what = "must be a folder, no link, named with a date and a short name in a-z, 0-9, dot and hyphen"
        raise Refused(f"{quote(folder.name)}: {what}; for example 2026-11-28_my-method")
    names = {path.name for path in folder.iterdir()}
    if names != LIMITS.keys():
        raise Refused(
            f"{folder.name}: must hold {' and '.join(LIMITS)} alone, got {quote(sorted(names))}; {HOW_TO_WRITE}"
        )
    bodies = {}
    for name, limit in LIMITS.items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise Refused(f"{name}: is not a regular file; submit the file itself, no link, folder or pipe")
        with path.open("rb") as file:
            bodies[name] = file.read(limit + 1)
        if len(bodies[name]) > limit:
            raise Refused(f"{name}: is larger than {limit:,} bytes; submit one run and nothing else")
    return bodies


def unpacked(body: bytes) -> list[bytes]:
    """Return the lines of a submission's samples; `Refused` if they are cut off or more than `MAX_EXPANDED`."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            text = stream.read(MAX_EXPANDED + 1)
    except (OSError, pa.ArrowException) as error:
        raise Refused(f"{SAMPLES}: is not whole zstd data, got {quote(str(error))}; {HOW_TO_WRITE}") from None
    if len(text) > MAX_EXPANDED:
        raise Refused(f"{SAMPLES}: expands to more than {MAX_EXPANDED // MIB} MiB; shorten the outputs")
    *lines, rest = text.split(b"\n")
    if rest:
        raise Refused(f"{SAMPLES}: has no line break at its end, so it is cut off; {HOW_TO_WRITE}")
    return lines


def packed(lines: bytes) -> bytes:
    """Return lines as a submission's samples hold them."""
    return bytes(pa.Codec("zstd", compression_level=19).compress(lines, asbytes=True))
