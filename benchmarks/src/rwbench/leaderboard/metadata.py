"""metadata.yaml: who submits what. The only words of a submission that the board shows."""

from __future__ import annotations

import difflib
import re
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from .files import METADATA
from .parsing import Problem, Scalar, flat_yaml, plain_text, quote, reason, refuse_if

URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?")
MAX_COST = 1e7


def _day(text: str) -> str:
    try:
        found = date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) else None
    except ValueError:
        found = None
    if found is None:
        raise PydanticCustomError("date", "must be a day as YYYY-MM-DD")
    # A day's grace: it is already tomorrow somewhere.
    if found > date.today() + timedelta(days=1):
        raise PydanticCustomError("date", "must not lie in the future")
    return text


def _link(text: str) -> str:
    if len(text) > 200 or not URL.fullmatch(text):
        raise PydanticCustomError("link", "must be an https link without user, port or query")
    return text


def _cost(value: Any) -> float:
    """Read decimal digits (no exponents, signs or words), as a YAML file has them, or a number."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,6})?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COST:
        raise PydanticCustomError("cost", "must be a number from 0 to 10,000,000")
    return float(value)


Text60 = Annotated[str, AfterValidator(partial(plain_text, longest=60))]
Text80 = Annotated[str, AfterValidator(partial(plain_text, longest=80))]
Text400 = Annotated[str, AfterValidator(partial(plain_text, longest=400))]
Day = Annotated[str, AfterValidator(_day)]
Link = Annotated[str, AfterValidator(_link)]
Cost = Annotated[float, BeforeValidator(_cost)]


class Metadata(BaseModel):
    """What a submission says about itself. `Metadata.of` refuses wrong values with file and line."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Text60 = Field(description="the method, up to 60 characters")
    submitter: Text60 = Field(description="person or team, up to 60 characters")
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
    cost_usd: Cost | None = Field(None, description="US dollars for the whole run")

    @classmethod
    def of(cls, entries: dict[str, Any]) -> Metadata:
        """Return checked metadata; `Refused` names every wrong field.

        Parameters
        ----------
        entries : dict
            Values by field; a `Scalar` brings its line along.
        """
        lines = {name: entry.line for name, entry in entries.items() if isinstance(entry, Scalar)}
        values = {name: entry.value if name in lines else entry for name, entry in entries.items()}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            refuse_if(cls._problem(item, values, lines) for item in error.errors(include_url=False))
            raise

    @classmethod
    def from_yaml(cls, body: bytes) -> Metadata:
        """Read the file; `Refused` names field and line."""
        return cls.of(flat_yaml(body, METADATA))

    def to_yaml(self) -> str:
        """Return the file's text: a line per field, in order, without those that are None."""
        import yaml

        lines = []
        for name, value in self.model_dump(exclude_none=True).items():
            text = str(value)
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*", text):
                # Quoted where YAML would read anything but this text.
                text = yaml.safe_dump(text, allow_unicode=True, width=10_000, default_style='"').strip()
            lines.append(f"{name}: {text}\n")
        return "".join(lines)

    @classmethod
    def _problem(cls, error: ErrorDetails, values: dict[str, Any], lines: dict[str, int]) -> Problem:
        name = str(error["loc"][0])
        if error["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, cls.model_fields, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(cls.model_fields)}"
            return Problem(METADATA, "unknown field", fix, lines.get(name), quote(name))
        fix = f"{name} is: {cls.model_fields[name].description}"
        if error["type"] == "missing":
            return Problem(METADATA, f"{name} is missing", fix)
        return Problem(METADATA, f"{name} {reason(error)}", fix, lines.get(name), quote(values[name]))
