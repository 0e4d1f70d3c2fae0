"""metadata.yaml: who submits what. The only words of a submission that the board shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from .files import METADATA
from .parsing import flat_yaml, model_problems, plain_text, refuse_if

URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?")
MAX_COST = 1e7


def _name(text: str) -> str:
    if not any(map(str.isalnum, text)):
        raise PydanticCustomError("name", "must have a letter or a digit")
    return plain_text(text, 60)


def _day(text: str) -> str:
    try:
        found = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
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


def _cost(value: Any) -> Any:
    """Read decimal digits (no exponents, signs or words), as a YAML file has them."""
    return (
        float(value)
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,6})?", value)
        else value
    )


Name = Annotated[str, AfterValidator(_name)]
Text80 = Annotated[str, AfterValidator(partial(plain_text, longest=80))]
Text400 = Annotated[str, AfterValidator(partial(plain_text, longest=400))]
Day = Annotated[str, AfterValidator(_day)]
Link = Annotated[str, AfterValidator(_link)]
Cost = Annotated[float, BeforeValidator(_cost), Field(ge=0, le=MAX_COST)]


class Metadata(BaseModel):
    """What a submission says about itself. `Metadata.of` refuses wrong values with file and line."""

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
    cost_usd: Cost | None = Field(
        None, description="US dollars for the whole run, a number from 0 to 10,000,000"
    )

    @classmethod
    def of(cls, values: Mapping[str, Any], lines: Mapping[str, int] | None = None) -> Metadata:
        """Return checked metadata; `Refused` names every wrong field, and its line if it is known."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            refuse_if(model_problems(error, METADATA, model=cls, lines=lines))
            raise

    @classmethod
    def from_yaml(cls, body: bytes) -> Metadata:
        """Read the file; `Refused` names field and line."""
        return cls.of(*flat_yaml(body, METADATA))

    def to_yaml(self) -> str:
        """Return the file's text: a line per field, in order, without those that are None."""
        import yaml

        lines = []
        for name, value in self.model_dump(exclude_none=True).items():
            text = str(value)
            if isinstance(value, float) and isinstance(
                _cost(text), str
            ):  # 1e-05, or more digits than are read
                text = f"{value:.6f}".rstrip("0").rstrip(".")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*", text):
                # Quoted where YAML would read anything but this text.
                text = yaml.safe_dump(text, allow_unicode=True, width=10_000, default_style='"').strip()
            lines.append(f"{name}: {text}\n")
        return "".join(lines)
