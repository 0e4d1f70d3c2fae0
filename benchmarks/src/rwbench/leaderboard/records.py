"""What a submission or a file of predictions says of each question, without a word of gold.

Questions, gold and scores are joined when it is read (`rwbench.leaderboard.judge`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from ruleworld_data.scoring import PARQUET_SUFFIXES, parse_boxed, read_predictions, split_answers

from ..score.samples import OUTCOMES, VOLATILE_USAGE, Sample
from ..spec import canonical_json
from .files import MAX_LINE, SAMPLES, sample_lines
from .parsing import Problem, Refused, model_problems, quote, refuse_if, strict_json

GOLD_KEYS = ("gold_answers", "gold_rules", "scores", "world_id", "subtask", "fold")
MAX_SEARCHES, MAX_FOUND = 32, 100
MAX_RECORDS = 20_000
MAX_AMOUNT = 1e9
FINISH = re.compile(r"finish\[(.*)\]", re.DOTALL)


def _distinct(found: list[int]) -> list[int]:
    if len(set(found)) != len(found):
        raise PydanticCustomError("twice", "must name each rule once")
    return found


# Checked as a float, kept as written: the hash of the samples tells 1 from 1.0.
Amount = Annotated[
    float,
    Field(ge=0, le=MAX_AMOUNT),
    WrapValidator(lambda value, check: (check(value), value)[1]),
]
Answer = Annotated[str, Field(max_length=200)]
Search = Annotated[list[int], Field(max_length=MAX_FOUND), AfterValidator(_distinct)]


class Record(BaseModel):
    """One line of samples.jsonl.zst. All keys are always there."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(max_length=80, description="the question's id")
    output: Annotated[str, Field(max_length=200_000)] | None = Field(
        description="the raw text that the answers were read from; null if the method writes none"
    )
    answers: Annotated[list[Answer], Field(max_length=64)] | None = Field(
        description="a text per sub-question, as the scorer reads them in output; null if it does not answer"
    )
    retrieved: Annotated[list[Search], Field(max_length=MAX_SEARCHES)] | None = Field(
        description="rule ids, best first, one list per search; null if the method retrieves nothing"
    )
    outcome: Literal[tuple(name for name in OUTCOMES if name != "failed")]  # type: ignore[valid-type]
    usage: Annotated[
        dict[Annotated[str, Field(pattern="^[a-z][a-z_]{0,30}$")], Amount], Field(max_length=20)
    ] = Field(description='name -> number, for example {"calls": 1}')
    seconds: Amount = Field(description="wall time")

    @model_validator(mode="after")
    def _answers_are_in_the_output(self) -> Self:
        if None not in (self.answers, self.output) and self.answers != (
            read := read_output(self.output or "")
        ):
            message = "answers are not what the scorer reads in output: {read}"
            raise PydanticCustomError("answers", message, {"read": quote(read)})
        return self

    @classmethod
    def of_sample(cls, sample: Sample) -> Record:
        """Return what a submission keeps of a run's sample."""
        searches = sample["retrieved"]
        usage: Any = {name: value for name, value in sample["usage"].items() if name not in VOLATILE_USAGE}
        return cls(
            id=sample["id"],
            output=sample["output"],
            answers=sample["answers"],
            # No question has so many steps, and recall counts no search beyond them: the scores are the same.
            retrieved=None if searches is None else searches[:MAX_SEARCHES],
            outcome=sample.get("outcome", "ok"),
            usage=usage,
            seconds=sample["seconds"],
        )

    def line(self) -> str:
        """Return the record as a line of a samples file."""
        return canonical_json(self.model_dump()) + "\n"


def read_records(body: bytes) -> dict[int, Record]:
    """Return the records of samples.jsonl.zst by line number; `Refused` names lines."""
    records: dict[int, Record] = {}
    refuse_if(_read_into(records, body))
    return records


def read_prediction_file(path: Path) -> dict[int, Record]:
    """Return the records of a predictions file by line (parquet: row); answers not given are read from outputs.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or a row of it cannot be used.
    """
    if path.suffix.lower() in PARQUET_SUFFIXES:
        table = read_predictions(path).items()
        return {
            n: _prediction({"id": id_, "output": text}, path, n) for n, (id_, text) in enumerate(table, 1)
        }
    if not path.is_file():
        raise FileNotFoundError(
            f'no predictions file at {path}; one {{"id": "...", "output": "..."}} per line of a .jsonl file'
        )
    records: dict[int, Record] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if len(line) > MAX_LINE:
                raise Refused(
                    Problem(str(path), f"more than {MAX_LINE:,} bytes", "shorten the output", number)
                )
            if line.strip():
                records[number] = _prediction(strict_json(line, str(path), number), path, number)
    return records


def read_output(text: str) -> list[str]:
    r"""Return the answers that an output gives: in its last ``\boxed{}``, or as ReAct's whole ``finish[...]``."""
    box = parse_boxed(text)
    if box is not None:
        return split_answers(box)
    done = FINISH.fullmatch(text)
    return split_answers(done[1]) if done else []


def _read_into(records: dict[int, Record], body: bytes) -> Iterator[Problem]:
    """Fill ``records`` and yield what is wrong with the other lines, line by line."""
    for number, line in sample_lines(body):
        if number > MAX_RECORDS:
            raise Refused(
                Problem(SAMPLES, f"has more than {MAX_RECORDS:,} lines", "one per question", number)
            )
        found = _record(strict_json(line, SAMPLES, number), SAMPLES, number)
        if isinstance(found, Problem):
            yield found
        else:
            records[number] = found


def _record(row: Any, file: str, line: int) -> Record | Problem:
    """Return a row as a record, or the first thing that is wrong with it."""
    fields = ", ".join(Record.model_fields)
    if not isinstance(row, dict):
        return Problem(file, "is not an object", f"keys: {fields}", line, quote(row))
    for name in GOLD_KEYS:
        if name in row:
            fix = "remove them: both are joined from our data"
            return Problem(file, "contains gold or scores", fix, line, quote(name))
    try:
        return Record.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = Record.model_fields.get(str(first["loc"][0])) if first["loc"] else None
        fix = (field and field.description) or f"exactly these keys: {fields}"
        return next(iter(model_problems(error, file, fix, line)))


def _prediction(row: Any, path: Path, number: int) -> Record:
    defaults: dict[str, Any] = {
        "output": None,
        "answers": None,
        "retrieved": None,
        "usage": {},
        "seconds": 0.0,
    }
    if not isinstance(row, dict) or "id" not in row or not set(row) <= {"id", *defaults}:
        what = f"expected an object with id and any of {', '.join(defaults)}"
        raise Refused(Problem(str(path), what, "leave other keys out", number, quote(row)))
    row = defaults | row
    output = row["output"]
    if row["answers"] is None and isinstance(output, str):
        row["answers"] = read_output(output)
    row["outcome"] = "refused_format" if output is not None and not row["answers"] else "ok"
    found = _record(row, str(path), number)
    if isinstance(found, Problem):
        raise Refused(found)
    return found
