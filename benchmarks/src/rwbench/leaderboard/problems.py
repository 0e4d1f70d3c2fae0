"""How a submission is refused, and the strict reading of what strangers wrote."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

MAX_QUOTED = 80
MAX_PROBLEMS = 20

Model = TypeVar("Model", bound=BaseModel)


class Refused(ValueError):
    """A submission was refused: a problem a line, each with its place, the value seen and what to do about it."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems[:MAX_PROBLEMS]))  # a hostile file may have millions


def quote(value: Any) -> str:
    """Return a value as one short line of printable ASCII, safe for a terminal."""
    text = ascii(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text):,} characters)"


def strict_json(body: bytes, place: str) -> Any:
    """Return the value of a JSON text; ``place`` names its file and line.

    `Refused` if it is not UTF-8 or not JSON, is nested too deep, or has NaN, a key twice or a number of thousands of
    digits.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(value := dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice")
        return value

    def no_constant(token: str) -> None:
        raise ValueError(f"{token} is no JSON")

    try:
        return json.loads(body.decode(), parse_constant=no_constant, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        start = body[error.pos :] if isinstance(error, json.JSONDecodeError) else body
        what = f"is not strict JSON ({ascii(str(error))[1:-1]}), got {quote(start[:MAX_QUOTED])}"
        raise Refused(f"{place}: {what}; write plain JSON in UTF-8") from None


def validated(model: type[Model], value: Any, place: str) -> Model:
    """Return a value as a model; `Refused` names every wrong field, and what its description says to write."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[:MAX_PROBLEMS]
        raise Refused(*(f"{place}: {_field_problem(item, model)}" for item in wrong)) from None


def _field_problem(item: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in item["loc"] if part != "[key]") or "content"
    if not re.fullmatch(r"[\w.@-]{1,80}", path, re.ASCII):
        path = quote(path)
    field = model.model_fields.get(str(item["loc"][0])) if item["loc"] else None
    fix = f"known fields: {', '.join(model.model_fields)}"
    if field is not None:
        fix = f"{item['loc'][0]} is: {field.description}"
    if item["type"] == "missing":
        return f"{path} is missing; {fix}"
    message = re.sub(r"^\w+ should", "must", item["msg"].removeprefix("Value error, "))
    what = "is an unknown field" if item["type"] == "extra_forbidden" else ascii(message)[1:-1][:200]
    return f"{path} {what}, got {quote(item['input'])}; {fix}"
