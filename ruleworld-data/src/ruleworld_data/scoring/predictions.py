"""Files of predictions: read them, and say exactly what is wrong with them.

A predictions file is JSON Lines, one ``{"id": ..., "output": ...}`` per line (further keys are ignored), or a
parquet file with the string columns ``id`` and ``output``. ``output`` is the whole text of the model, box and
all. Beside it may stand a ``confidence``, any finite number, higher where the answer is more sure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

EXPECTED = 'expected {"id": "...", "output": "..."}'
PARQUET_SUFFIXES = (".parquet", ".pq")


def read_predictions(path: str | Path) -> dict[str, str]:
    """Read a predictions file.

    Parameters
    ----------
    path : str or Path
        A parquet file (by its suffix) or JSON Lines in UTF-8. Blank lines are skipped.

    Returns
    -------
    dict
        The output of each question id, in file order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not UTF-8, a line is malformed, or an id comes twice; the text names file and line (for
        parquet: file and row).
    """
    outputs: dict[str, str] = {}
    places: dict[str, str] = {}
    for place, row in _rows(Path(path)):
        for key in ("id", "output"):
            if not isinstance(row.get(key), str):
                seen = f"{key} is {_short(row[key])}" if key in row else f"there is no {key!r}"
                raise ValueError(f"{path}, {place}: {seen}; {EXPECTED} with two strings")
        name = row["id"]
        if name in outputs:
            first = places[name]
            raise ValueError(
                f"{path}, {place}: id {name!r} was given before, on {first}; keep one output per id"
            )
        outputs[name], places[name] = row["output"], place
    return outputs


def read_confidences(path: str | Path) -> dict[str, float] | None:
    """Return the ``confidence`` of each question id of a predictions file, or None if it has none.

    Raises
    ------
    ValueError
        If only some lines have one, or one is no finite number. The rest of the file is `read_predictions`' matter.
    """
    given = [(place, row["id"], row.get("confidence")) for place, row in _rows(Path(path))]
    if all(value is None for _, _, value in given):
        return None
    confidences: dict[str, float] = {}
    for place, name, value in given:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise ValueError(
                f"{path}, {place}: confidence must be a finite number, as in 0.9, got {value!r}; give one with every "
                "output, or with none"
            )
        confidences[name] = float(value)
    return confidences


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each after where it stands."""
    if not path.is_file():
        raise FileNotFoundError(
            f"no predictions file at {path}; {EXPECTED} per line of a .jsonl file, or a .parquet file"
        )
    parquet = path.suffix.lower() in PARQUET_SUFFIXES
    for number, row in _parquet_rows(path) if parquet else _json_rows(path):
        yield f"{'row' if parquet else 'line'} {number}", row


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                row = json.loads(text) if text.strip() else None
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{place}: not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1}); "
                    "save the file as UTF-8"
                ) from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{place}: not valid JSON ({error}); {EXPECTED}") from None
            if isinstance(row, dict):
                yield number, row
            elif text.strip():
                raise ValueError(f"{place}: a JSON object was expected, got {_short(row)}; {EXPECTED}")


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable parquet file ({error})") from None
    if missing := {"id", "output"} - set(table.column_names):
        raise ValueError(
            f"{path}: no column {' and '.join(map(repr, sorted(missing)))}; expected 'id' and 'output', "
            f"got {table.column_names}"
        )
    wanted = [name for name in ("id", "output", "confidence") if name in table.column_names]
    yield from enumerate(table.select(wanted).to_pylist(), start=1)


def _short(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '...'}"
