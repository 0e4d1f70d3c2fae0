"""Recipes of training as TOML files, checked by pydantic as they are read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
T = TypeVar("T")


def read_recipe_file(path: Path, kind: type[T], of: str, example: str) -> T:
    """Return a recipe, a pydantic dataclass with a field ``name``, which is its file's.

    Raises
    ------
    ValueError
        If a field is unknown or a value impossible; the message names the file, each such field, what is trained by
        such a recipe (``of``), and a good one.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8")) | {"name": path.stem}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no TOML ({error}); compare {example}") from None
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems = [
            ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
            for each in error.errors(include_url=False)
        ]
        raise ValueError(f"{path} is no recipe of {of}: {'; '.join(problems)}; compare {example}") from None
