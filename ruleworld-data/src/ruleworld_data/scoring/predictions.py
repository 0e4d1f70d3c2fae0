"""Files of predictions: read them, and say exactly what is wrong with them.

A predictions file is JSON Lines in UTF-8, one ``{"id": ..., "output": ...}`` per line; further keys are ignored.
``output`` is the whole text of the model, box and all. Beside it may stand a ``confidence``, any finite number, higher
where the answer is more sure, and the question's ``world_id``, which tells worlds apart whose questions share ids.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from .selective import finite

EXPECTED = 'expected {"id": "...", "output": "..."}'


class Predictions(NamedTuple):
    """The output of each question id, in file order; how sure each is, and its world, as far as the file says."""

    outputs: dict[str, str]
    confidences: dict[str, float] | None
    worlds: dict[str, Any]


def read_predictions(path: str | Path) -> Predictions:
    """Read a predictions file; blank lines are skipped.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not UTF-8, a line is malformed, an id comes twice, or only some lines have a confidence; the text
        names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no predictions file at {path}; {EXPECTED} per line of a .jsonl file")
    outputs: dict[str, str] = {}
    given: dict[str, tuple[str, Any]] = {}
    worlds: dict[str, Any] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}, line {number}"
            if (row := _row(line, place, first=number == 1)) is None:
                continue
            for key in ("id", "output"):
                if not isinstance(row.get(key), str):
                    seen = f"{key} is {_short(row[key])}" if key in row else f"there is no {key!r}"
                    raise ValueError(f"{place}: {seen}; {EXPECTED} with two strings")
            name = row["id"]
            if name in outputs:
                before = given[name][0].rpartition(", ")[2]
                raise ValueError(
                    f"{place}: id {name!r} was given before, on {before}; keep one output per id"
                )
            outputs[name], given[name] = row["output"], (place, row.get("confidence"))
            worlds |= {name: row["world_id"]} if "world_id" in row else {}
    return Predictions(outputs, _confidences(given), worlds)


def _row(line: bytes, place: str, *, first: bool) -> dict[str, Any] | None:
    """Read one line; None of a blank one."""
    try:
        text = line.decode("utf-8-sig" if first else "utf-8")
        row = json.loads(text) if text.strip() else None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1}); "
            "save the file as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not valid JSON ({error}); {EXPECTED}") from None
    if text.strip() and not isinstance(row, dict):
        raise ValueError(f"{place}: a JSON object was expected, got {_short(row)}; {EXPECTED}")
    return row


def _confidences(given: dict[str, tuple[str, Any]]) -> dict[str, float] | None:
    if all(value is None for _, value in given.values()):
        return None
    return {name: finite(f"{place}: confidence", value) for name, (place, value) in given.items()}


def _short(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '...'}"
