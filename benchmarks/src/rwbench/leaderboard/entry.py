"""submission.json: who hands in which run. Its words are the only ones of a submission that the board shows."""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..spec import canonical_json
from .files import ENTRY, KIB
from .problems import strict_json, validated

URL = r"^https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?$"
MAX_SPEC = 16 * KIB
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
"""Letters and symbols that print as nothing, though `str.isprintable` lets them pass."""


def _shows(text: str) -> bool:
    """Whether all of a text is seen: nothing invisible, no control characters, no marks to stack on a letter."""
    return text.isprintable() and not any(
        letter in BLANK or unicodedata.category(letter) in ("Mn", "Me") for letter in text
    )


def _plain(text: str, longest: int) -> str:
    start = text[: longest + 1]
    for right, must in (
        (0 < len(text) <= longest, f"have 1 to {longest} characters"),
        (text == text.strip(), "have no blanks at its ends"),
        # a mark that goes with its letter is part of it in NFC
        (unicodedata.is_normalized("NFC", start), "have composed characters (NFC)"),
        (_shows(start), "be one line without control or invisible characters and loose accents"),
        (not re.search("[<>]", start), "be plain text without < and >"),
        # one compatibility character can spell a whole sentence
        (len(unicodedata.normalize("NFKC", start)) <= longest, f"have 1 to {longest} characters spelt out"),
    ):
        if not right:
            raise ValueError(f"must {must}")
    return text


def _name(text: str) -> str:
    if not any(map(str.isalnum, text)):
        raise ValueError("must have a letter or a digit")
    return _plain(text, 60)


def _day(text: str) -> str:
    date.fromisoformat(text)
    return text


def _spec(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a spec that is more than plain text to a terminal or a browser; `Judge.check_spec` reads it."""
    text = canonical_json(value)
    if len(text) > MAX_SPEC:
        raise ValueError(f"must have at most {MAX_SPEC // KIB} KiB")
    # A backslash that stands for neither itself nor a quotation mark escapes a control character.
    if re.search(r"[<>\\]", re.sub(r'\\[\\"]', "", text)) or not _shows(text):
        raise ValueError("must be plain text without <, >, control and invisible characters")
    return value


Name = Annotated[str, AfterValidator(_name)]
Text80 = Annotated[str, AfterValidator(partial(_plain, longest=80))]
Text400 = Annotated[str, AfterValidator(partial(_plain, longest=400))]
Day = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_day)]
Link = Annotated[str, Field(pattern=URL, max_length=200)]


class Entry(BaseModel):
    """What a submission says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name = Field(description="the method, up to 60 characters")
    submitter: Name = Field(description="person or team, up to 60 characters")
    date: Day = Field(description="a day as YYYY-MM-DD")
    model: Text80 = Field(description="language model and revision, or none; up to 80 characters")
    open_weights: Literal["yes", "no", "none"] = Field(description="yes, no, or none (no weights at all)")
    trained: Literal["yes", "no"] = Field(
        description="yes if anything was fitted to RuleWorld's train split, else no"
    )
    description: Text400 = Field(description="one or two sentences, up to 400 characters")
    kind: Literal["contender", "floor", "ceiling"] = Field(
        "contender", description="contender, floor, or ceiling (it looks at gold data)"
    )
    code: Link | None = Field(None, description="an https link without user, port or query")
    paper: Link | None = Field(None, description="an https link without user, port or query")
    hardware: Text80 | None = Field(None, description="what it ran on, up to 80 characters")
    cost_usd: Annotated[float, Field(ge=0, le=1e7)] | None = Field(
        None, description="US dollars for the whole run, a number from 0 to 10,000,000"
    )
    spec: Annotated[dict[str, Any], AfterValidator(_spec)] = Field(
        description="the run's spec.json: method and setting"
    )


def read_entry(body: bytes) -> Entry:
    """Return the entry of a file's bytes; `Refused` names field or line."""
    return validated(Entry, strict_json(body, ENTRY), ENTRY)
