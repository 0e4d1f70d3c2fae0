"""Recipes of training as TOML files, checked by pydantic as they are read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(extra="forbid")
T = TypeVar("T")


def read_recipe_file(path: Path, kind: type[T], of: str, example: str) -> T:
    """Return a recipe, named after its file.

    Parameters
    ----------
    path : Path
    kind : type
        A pydantic dataclass with a field ``name``.
    of, example : str
        What is trained by such a recipe, and a good one; for messages.

    Raises
    ------
    ValueError
        If a field is unknown or a value impossible; the message names the file and each such field.
    """
    values = tomllib.loads(path.read_text(encoding="utf-8")) | {"name": path.stem}
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        wrong = [
            ": ".join(
                filter(None, (".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")))
            )
            for each in error.errors(include_url=False)
        ]
        raise ValueError(f"{path} is no recipe of {of}: {'; '.join(wrong)}; compare {example}") from None
