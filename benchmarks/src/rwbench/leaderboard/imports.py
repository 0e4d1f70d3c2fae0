"""`rwbench import`: predictions made elsewhere become a run, scored as ours are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole
from ruleworld_data.scoring import PARQUET_SUFFIXES, read_predictions

from ..run.environment import environment
from ..run.runner import SAMPLES_FILE, SPEC_FILE
from ..run.samples import exclusive
from ..spec import RunSpec, canonical_json
from .copies import content_sha256
from .files import MAX_LINE
from .parsing import strict_json
from .records import KEYS, Record, read_output, record_problem
from .refusals import Refused, shown
from .rescore import PUBLIC_SEED, Judge, pool_design

FIELDS = ("id", "output", "answers", "retrieved", "usage", "seconds")


def import_predictions(
    path: Path,
    label: str,
    representation: str,
    pool_size: int,
    out: Path,
    judge: Judge,
    scale: str = "paper",
    split: str = "mini",
    subtasks: Sequence[str] = (),
    seed: int = PUBLIC_SEED,
) -> Path:
    """Write predictions as a run folder and return it.

    Parameters
    ----------
    path : Path
        JSON Lines with ``id`` and any of ``output``, ``answers``, ``retrieved``, ``usage``, ``seconds``; or parquet
        with ``id`` and ``output``.
    label : str
        What reports call the method.
    representation, pool_size, scale, split
        What the method was shown; `rwbench kit` writes questions and pools of a setting.
    out : Path
        Folder of run folders.
    judge : Judge
    subtasks : sequence of str
        Sub-tasks that were answered; empty: all.
    seed : int
        World seed; another than the public one in a round.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file or a row of it cannot be used; the message names the line.
    """
    records = read_rows(path)
    fields: dict[str, Any] = {"subtasks": tuple(subtasks)} if subtasks else {}
    spec = RunSpec(
        method={"name": "imported", "label": label, "content": content_sha256(records.values())},
        representation=representation,
        data=judge.workspace(scale, seed).source.version,
        scale=scale,
        world_seed=seed,
        split=split,
        **pool_design(pool_size, scale),
        **fields,
    )
    judge.check_spec(spec.to_dict())
    samples = judge.samples(spec, records, str(path))
    results = judge.results(spec, samples, {"key": "imported", "label": label})
    results["environment"] = environment()
    results["timing"]["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    folder = out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        write_whole(folder / SPEC_FILE, _indented(spec.to_dict()))
        write_whole(
            folder / SAMPLES_FILE, "".join(canonical_json(sample) + "\n" for sample in samples).encode()
        )
        write_whole(folder / "results.json", _indented(results))
    return folder


def read_rows(path: Path) -> dict[int, Record]:
    """Return the records of a predictions file by line (parquet: row); answers not given are read from outputs."""
    if path.suffix.lower() in PARQUET_SUFFIXES:
        rows = [{"id": name, "output": output} for name, output in read_predictions(path).items()]
        return {number: _record(row, f"{path}, row {number}") for number, row in enumerate(rows, 1)}
    if not path.is_file():
        raise FileNotFoundError(
            f'no predictions file at {path}; one {{"id": "...", "output": "..."}} per line of a .jsonl file'
        )
    records: dict[int, Record] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if len(line) > MAX_LINE:
                raise ValueError(f"{path}, line {number}: more than {MAX_LINE:,} bytes; shorten the output")
            if line.strip():
                try:
                    row = strict_json(line, str(path), number)
                except Refused as error:
                    raise ValueError(str(error)) from None
                records[number] = _record(row, f"{path}, line {number}")
    return records


def _record(row: Any, place: str) -> Record:
    if not isinstance(row, Mapping) or "id" not in row or not set(row) <= set(FIELDS):
        raise ValueError(
            f"{place}: expected an object with id and any of {', '.join(FIELDS[1:])}, got {shown(row)}"
        )
    output = row.get("output")
    answers = row.get("answers")
    if answers is None and isinstance(output, str):
        answers = read_output(output)
    record = dict.fromkeys(KEYS) | {
        "id": row["id"],
        "output": output,
        "answers": answers,
        "retrieved": row.get("retrieved"),
        "outcome": "refused_format" if output is not None and not answers else "ok",
        "usage": row.get("usage", {}),
        "seconds": row.get("seconds", 0.0),
    }
    if found := record_problem(record):
        what, mend, value = found
        raise ValueError(f"{place}: {what}, got {shown(value)}; {mend}")
    return record


def _indented(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
