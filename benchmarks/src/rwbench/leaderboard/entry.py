"""submission.json: who hands in which run. Its words are the only ones of a submission that the board shows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ..spec import canonical_json
from .files import ENTRY, KIB
from .parsing import INVISIBLE, model_problems, plain_text, quote, refuse_if, strict_json

URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?")
FIRST_DAY = date(2026, 1, 1)
MAX_SPEC = 16 * KIB


def _name(text: str) -> str:
    if not any(map(str.isalnum, text)):
        raise PydanticCustomError("name", "must have a letter or a digit")
    return plain_text(text, 60)


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        day = None
    if day is None:
        raise PydanticCustomError("date", "must be a day as YYYY-MM-DD")
    # A day's grace: it is already tomorrow somewhere.
    if not FIRST_DAY <= day <= date.today() + timedelta(days=1):
        raise PydanticCustomError("date", f"must not lie in the future or before {FIRST_DAY}")
    return text


def _link(text: str) -> str:
    if len(text) > 200 or not URL.fullmatch(text):
        raise PydanticCustomError("link", "must be an https link without user, port or query")
    return text


def _spec(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a spec that is more than plain text to a terminal or a browser; `Judge.check_spec` reads it."""
    text = canonical_json(value)
    # What is left of backslashes escapes a control character.
    plain = text.replace(r"\\", " ").replace(r"\"", " ")
    if len(text) > MAX_SPEC:
        raise PydanticCustomError("spec", f"must have at most {MAX_SPEC // KIB} KiB")
    if re.search(r"[<>\\]", plain) or INVISIBLE.search(plain) or not plain.isprintable():
        raise PydanticCustomError("spec", "must be plain text without <, >, control and invisible characters")
    return value


Name = Annotated[str, AfterValidator(_name)]
Text80 = Annotated[str, AfterValidator(partial(plain_text, longest=80))]
Text400 = Annotated[str, AfterValidator(partial(plain_text, longest=400))]
Day = Annotated[str, AfterValidator(_day)]
Link = Annotated[str, AfterValidator(_link)]


class Entry(BaseModel):
    """What a submission says about itself. `Entry.of` and `Entry.read` refuse wrong values by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name = Field(description="the method, up to 60 characters")
    submitter: Name = Field(description="person or team, up to 60 characters")
    date: Day = Field(description="YYYY-MM-DD")
    model: Text80 = Field(description="language model and revision, or none; up to 80 characters")
    open_weights: Literal["yes", "no", "none"] = Field(description="yes, no, or none (no weights at all)")
    trained: Literal["yes", "no"] = Field(
        description="yes if anything was fitted to RuleWorld's train split, else no"
    )
    description: Text400 = Field(description="one or two sentences, up to 400 characters")
    kind: Literal["contender", "floor", "ceiling"] = Field(
        "contender", description="contender, floor, or ceiling (it looks at gold data)"
    )
    code: Link | None = Field(None, description="https link")
    paper: Link | None = Field(None, description="https link")
    hardware: Text80 | None = Field(None, description="what it ran on, up to 80 characters")
    cost_usd: Annotated[float, Field(ge=0, le=1e7)] | None = Field(
        None, description="US dollars for the whole run, a number from 0 to 10,000,000"
    )
    spec: Annotated[dict[str, Any], AfterValidator(_spec)] = Field(
        description="the run's spec.json: method and setting"
    )

    @classmethod
    def of(cls, values: Any) -> Entry:
        """Return a checked entry; `Refused` names every wrong field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            refuse_if(model_problems(error, ENTRY, cls))
            raise

    @classmethod
    def read(cls, body: bytes) -> Entry:
        """Return the entry of a file's bytes; `Refused` names field or line."""
        return cls.of(strict_json(body, ENTRY))

    def to_json(self) -> bytes:
        """Return the file's bytes, without fields that are None."""
        return json_bytes(self.model_dump(exclude_none=True))


def looks_at_gold(method: Mapping[str, Any]) -> str | None:
    """Return what of a method's spec reads gold data, quoted; None if nothing does."""
    rules = method.get("rules")
    if rules in ("gold", "without_gold"):
        return quote(rules)
    if method.get("correct_layer") is not None:
        return quote("correct_layer")
    return quote("solver") if method.get("name") == "solver" else None


def json_bytes(value: Any) -> bytes:
    """Return indented JSON with a line break at its end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
