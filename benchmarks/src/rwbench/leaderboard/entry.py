"""submission.json: who hands in which run. Its words are the only ones of a submission that the board shows."""

import re
import unicodedata
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..spec import canonical_json
from .files import KIB

URL = r"^https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?$"
MAX_SPEC = 16 * KIB


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
