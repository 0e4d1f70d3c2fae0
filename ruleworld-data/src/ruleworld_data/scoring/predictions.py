"""Files of predictions: read them, say exactly what is wrong with them, and score them against question rows.

A predictions file is JSON Lines, one ``{"id": ..., "output": ...}`` per line (further keys are ignored), or a
parquet file with the string columns ``id`` and ``output``. ``output`` is the whole text of the model, box and
all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ruleworld_data.scoring.answers import SCORER_VERSION, Score, score_output
from ruleworld_data.spec import SUBTASKS

EXPECTED = 'expected {"id": "...", "output": "..."}'
PARQUET_SUFFIXES = (".parquet", ".pq")
NAMES_SHOWN = 5

PAPER_GROUPS = {
    "single": SUBTASKS[:1],
    "multi_rule_2_4": SUBTASKS[1:4],
    "multi_rule_5_8": SUBTASKS[4:8],
    "multi_hop_2": SUBTASKS[8:9],
    "multi_hop_3": SUBTASKS[9:10],
    "multi_hop_4": SUBTASKS[10:11],
}
"""The six columns of the paper's main table, whose mean is the overall score of one seed."""


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
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no predictions file at {path}; {EXPECTED} per line of a .jsonl file, or a .parquet file"
        )
    rows = _parquet_rows(path) if path.suffix.lower() in PARQUET_SUFFIXES else _json_rows(path)
    outputs: dict[str, str] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        for key in ("id", "output"):
            if not isinstance(row.get(key), str):
                seen = f"{key} is {_short(row[key])}" if key in row else f"there is no {key!r}"
                raise ValueError(f"{place}: {seen}; {EXPECTED} with two strings")
        name = row["id"]
        if name in outputs:
            first = places[name].rpartition(", ")[2]
            raise ValueError(f"{place}: id {name!r} was given before, on {first}; keep one output per id")
        outputs[name], places[name] = row["output"], place
    return outputs


def _json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{place}: not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1}); "
                    "save the file as UTF-8"
                ) from None
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{place}: not valid JSON ({error}); {EXPECTED}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{place}: a JSON object was expected, got {_short(row)}; {EXPECTED}")
            yield place, row


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        source = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable parquet file ({error})") from None
    names = source.schema_arrow.names
    missing = [name for name in ("id", "output") if name not in names]
    if missing:
        raise ValueError(
            f"{path}: no column {' and '.join(map(repr, missing))}; expected 'id' and 'output', got {names}"
        )
    number = 0
    try:
        for batch in source.iter_batches(columns=["id", "output"]):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: cannot be read behind row {number} ({error})") from None


def score_predictions(
    rows: Iterable[Mapping[str, Any]], predictions: Mapping[str, str], allow_missing: bool = False
) -> dict[str, Any]:
    """Score predictions against question rows.

    Parameters
    ----------
    rows : iterable of mappings
        Questions with at least ``id``, ``subtask`` and ``answers``: a `datasets.Dataset`, or
        ``question_table(...).select(["id", "subtask", "answers"]).to_pylist()``.
    predictions : mapping of str to str
        The output of each id, as from `read_predictions`.
    allow_missing : bool
        Score a question without prediction as 0 instead of refusing.

    Returns
    -------
    dict
        Ready for JSON: ``scorer_version``, ``n`` (questions), ``missing`` (questions without prediction),
        ``foreign`` (predictions without question, which are ignored), ``macro`` (means over the sub-tasks
        present), ``paper`` (mean over the paper's six groups, None unless all are present) and ``subtasks``.
        The last holds, by sub-task, ``n``, ``missing``, ``exact_match``, ``strict_match`` and the shares
        ``length_mismatch`` and ``missing_box``. All rates are in 0..1; a missing prediction counts in
        ``missing`` alone, as a score of 0.

    Raises
    ------
    ValueError
        If there are no rows, an id comes twice in them, predictions are missing and ``allow_missing`` is
        false, or no prediction belongs to any row.
    """
    scores: dict[str, list[Score | None]] = {}
    missing: list[str] = []
    seen: set[str] = set()
    for row in rows:
        name = row["id"]
        if name in seen:
            raise ValueError(
                f"question id {name!r} comes twice in the rows to score against; give each split once"
            )
        seen.add(name)
        output = predictions.get(name)
        if output is None:
            missing.append(name)
        scores.setdefault(row["subtask"], []).append(
            None if output is None else score_output(output, row["answers"])
        )
    if not seen:
        raise ValueError("there are no questions to score against; choose a split that has rows")
    foreign = [name for name in predictions if name not in seen]
    _check_coverage(missing, foreign, len(seen), allow_missing)
    order = sorted(
        scores, key=lambda name: (SUBTASKS.index(name) if name in SUBTASKS else len(SUBTASKS), name)
    )
    subtasks = {name: _summary(scores[name]) for name in order}
    return {
        "scorer_version": SCORER_VERSION,
        "n": len(seen),
        "missing": len(missing),
        "foreign": len(foreign),
        "macro": {
            metric: fmean(summary[metric] for summary in subtasks.values())
            for metric in ("exact_match", "strict_match", "length_mismatch", "missing_box")
        },
        "paper": _paper_overall(scores),
        "subtasks": subtasks,
    }


def _check_coverage(missing: Sequence[str], foreign: Sequence[str], total: int, allow_missing: bool) -> None:
    if foreign and len(missing) == total:
        raise ValueError(
            f"none of the {len(foreign)} predicted ids ({_list(foreign)}) is among the {total} questions "
            f"({_list(missing)}); score against the split that was predicted"
        )
    if missing and not allow_missing:
        beside = f"; {len(foreign)} predictions belong to no question ({_list(foreign)})" if foreign else ""
        raise ValueError(
            f"{len(missing)} of {total} questions have no prediction ({_list(missing)}){beside}; "
            "add them, or pass allow_missing=True (--allow-missing) to score them as 0"
        )


def _summary(scores: Sequence[Score | None]) -> dict[str, float]:
    given = [score for score in scores if score is not None]
    n = len(scores)
    return {
        "n": n,
        "missing": n - len(given),
        "exact_match": sum(score.exact_match for score in given) / n,
        "strict_match": sum(score.strict_match for score in given) / n,
        "length_mismatch": sum(score.length_mismatch for score in given) / n,
        "missing_box": sum(score.missing_box for score in given) / n,
    }


def _paper_overall(scores: Mapping[str, Sequence[Score | None]]) -> dict[str, float] | None:
    if not all(name in scores for group in PAPER_GROUPS.values() for name in group):
        return None
    groups = {
        name: _summary([score for subtask in group for score in scores[subtask]])["exact_match"]
        for name, group in PAPER_GROUPS.items()
    }
    return {"exact_match": fmean(groups.values()), **groups}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown + ", ..." if len(names) > NAMES_SHOWN else shown


def _short(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '...'}"
