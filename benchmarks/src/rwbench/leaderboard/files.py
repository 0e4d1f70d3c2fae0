"""Files of a submission: two plain files of known names and bounded size, and nothing else.

submission.json says who hands in which run. Its words are the only ones of a submission that the board shows.
"""

import re
import unicodedata
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..spec import canonical_json, in_words

ENTRY, SAMPLES = "submission.json", "samples.jsonl.zst"
KIB, MIB = 1 << 10, 1 << 20
LIMITS = {ENTRY: 32 * KIB, SAMPLES: 16 * MIB}
"""Bytes at most of each file that a submission consists of."""
MAX_EXPANDED = 64 * MIB
FOLDER_NAME = re.compile(r"(?=.{12,80}$)[0-9]{4}-[0-9]{2}-[0-9]{2}_[a-z0-9]+([.-][a-z0-9]+)*")
"""Lower case, so that no two names differ in case only; no control characters, no path."""
URL = r"^https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?$"
MAX_SPEC = 16 * KIB
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


def _plain(text: str, longest: int) -> str:
    if (
        not 0 < len(text) <= longest
        or text != text.strip()
        or not text.isprintable()
        or re.search("[<>]", text)
    ):
        raise ValueError(f"must be 1 to {longest} characters on one line, without < and >")
    return text


def _name(text: str) -> str:
    """Refuse letters that look like others, and signs that nobody sees: only Latin letters and ASCII are left."""
    # not so of "\u0251", which reads as "a", and of "\u017f", which reads as "f"
    bases = [unicodedata.normalize("NFD", sign)[0] for sign in text]
    latin = [sign.isascii() or unicodedata.name(sign, "").startswith("LATIN ") for sign in text]
    if not all(latin) or not all(" " <= base <= "~" for base in bases):
        raise ValueError("must be in Latin letters A to Z, accents allowed, digits and ASCII punctuation")
    if not skeleton(text):
        raise ValueError("must have a letter or a digit")
    return _plain(text, 60)


def _spec(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a spec that is more than plain text to a terminal or a browser; `judge.check_spec` reads it."""
    text = canonical_json(value)
    # A backslash that stands for neither itself nor a quotation mark escapes a control character.
    if len(text) > MAX_SPEC or not text.isprintable() or re.search(r'[<>]|\\[^\\"]', text):
        raise ValueError(f"spec must be plain text of at most {MAX_SPEC // KIB} KiB, without < and >")
    return value


def skeleton(name: str) -> str:
    """Return what is left of a name read in passing: no case, accents, blanks, punctuation; I, 1, | and l are one, too.

    So two names that UTS 39 calls confusable are one: of the signs that `_name` lets in it knows no other pairs.
    """
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFD", name).casefold().replace("|", "l")))
    return plain.translate(str.maketrans("i10", "llo")).replace("rn", "m").replace("vv", "w")


Name = Annotated[str, AfterValidator(_name)]
Text80 = Annotated[str, AfterValidator(partial(_plain, longest=80))]
Text400 = Annotated[str, AfterValidator(partial(_plain, longest=400))]
Day = Annotated[
    str,
    Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    AfterValidator(lambda day: str(date.fromisoformat(day))),
]
Link = Annotated[str, Field(pattern=URL, max_length=200)]


class Entry(BaseModel):
    """What a submission says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name  # of the method
    submitter: Name  # person or team
    date: Day
    model: Text80 = "none"  # language model and revision, or "none"
    open_weights: Literal["yes", "no", "none"] = "none"  # none: no weights at all
    trained: Literal["yes", "no"] = "no"  # whether anything was fitted to RuleWorld's train split
    description: Text400  # one or two sentences
    kind: Literal["contender", "floor", "ceiling"] = "contender"  # a ceiling looks at gold data
    code: Link | None = None
    paper: Link | None = None
    hardware: Text80 | None = None
    cost_usd: Annotated[float, Field(ge=0, le=1e7)] | None = None  # for the whole run
    spec: Annotated[dict[str, Any], AfterValidator(_spec)]  # the run's spec.json
