"""What a submission or a file of predictions says of each question, without a word of gold.

Questions, gold and scores are joined when it is read (`rwbench.leaderboard.judge`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from ruleworld_data.scoring import PARQUET_SUFFIXES, parse_boxed, read_predictions, split_answers

from ..score.samples import OUTCOMES, VOLATILE_USAGE, Sample, Usage, packed
from ..spec import canonical_json, in_words
from .files import LIMITS, MAX_EXPANDED, MAX_LINE, SAMPLES, sample_lines
from .parsing import Problem, Refused, model_problems, quote, refuse, refuse_if, strict_json

MAX_SEARCHES, MAX_FOUND = 32, 100
MAX_RECORDS = 20_000
MAX_OUTPUT = 200_000
MAX_PARTS, MAX_PART = 64, 200
"""Answers kept of an output, and characters of each: gold is far shorter, so what is cut was wrong and stays so."""
MAX_AMOUNT = 10**9
FINISH = re.compile(r"finish\[(.*)\]", re.DOTALL | re.IGNORECASE)
PREDICTED: dict[str, Any] = {
    "output": None,
    "answers": None,
    "retrieved": None,
    "usage": {},
    "seconds": 0.0,
}
"""What a line of predictions may leave out."""


def _distinct(found: list[int]) -> list[int]:
    if len(set(found)) != len(found):
        raise PydanticCustomError("twice", "must name each rule once")
    return found


@lru_cache(maxsize=1)
def _logged() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)


def _as_logged(usage: dict[str, float]) -> dict[str, float]:
    try:
        _logged().validate_python(usage)
    except ValidationError as error:
        raise PydanticCustomError(
            "usage", "must be as it is logged ({why})", {"why": in_words(error)}
        ) from None
    return usage


# Checked as a float, kept as written: the hash of the samples tells 1 from 1.0.
Amount = Annotated[
    float,
    Field(ge=0, le=MAX_AMOUNT),
    WrapValidator(lambda value, check: (check(value), value)[1]),
]
Answer = Annotated[str, Field(max_length=MAX_PART)]
Search = Annotated[list[int], Field(max_length=MAX_FOUND), AfterValidator(_distinct)]


class Record(BaseModel):
    """One line of samples.jsonl.zst. All keys are always there."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(max_length=80, description="the question's id")
    output: Annotated[str, Field(max_length=MAX_OUTPUT)] | None = Field(
        description="the raw text that the answers were read from; null if the method writes none"
    )
    answers: Annotated[list[Answer], Field(max_length=MAX_PARTS)] | None = Field(
        description="a text per sub-question, as the scorer reads them in output; null if it does not answer"
    )
    retrieved: Annotated[list[Search], Field(max_length=MAX_SEARCHES)] | None = Field(
        description="rule ids, best first, one list per search; null if the method retrieves nothing"
    )
    outcome: Literal[tuple(name for name in OUTCOMES if name != "failed")] = Field(  # type: ignore[valid-type]
        description="how it ended; a submission has no failed question"
    )
    usage: Annotated[
        dict[Annotated[str, Field(pattern="^[a-z][a-z_]{0,30}$")], Amount],
        Field(max_length=20),
        AfterValidator(_as_logged),
    ] = Field(description='name -> number, for example {"calls": 1}')
    seconds: Amount = Field(description="wall time")

    @model_validator(mode="after")
    def _answers_are_in_the_output(self) -> Self:
        # A method reads a box, or its own finish[...]: which of the two, the text alone does not say.
        if None not in (self.answers, self.output) and self.answers not in (
            read := _readings(self.output or "")
        ):
            message = "answers are not what the scorer reads in output: {read}"
            raise PydanticCustomError("answers", message, {"read": quote(read[0])})
        return self

    @classmethod
    def of_sample(cls, sample: Sample) -> Record:
        """Return what a submission keeps of a run's sample, whatever a model wrote; its scores are the same."""
        kept: dict[str, Any] = {name: sample.get(name) for name in cls.model_fields}
        kept["outcome"] = kept["outcome"] or "ok"
        usage: dict[str, Any] = {**sample.get("usage", {})}
        # More than so many is no count, but what a server said.
        kept["usage"] = {
            name: min(value, MAX_AMOUNT) for name, value in usage.items() if name not in VOLATILE_USAGE
        }
        if kept["answers"] is not None:
            kept["answers"] = _capped(kept["answers"])
        if len(kept["output"] or "") > MAX_OUTPUT:
            kept["output"] = None
        if kept["retrieved"] is not None:
            # No question has so many steps, and recall counts no search beyond them: the scores are the same.
            kept["retrieved"] = kept["retrieved"][:MAX_SEARCHES]
        return cls(**kept)

    def line(self) -> str:
        """Return the record as a line of a samples file."""
        return canonical_json(self.model_dump()) + "\n"


def pack_samples(samples: Iterable[Sample]) -> bytes:
    """Return the samples file of a run; the longest outputs are left out if it would be too large."""
    records = [Record.of_sample(sample) for sample in samples]
    for longest in (MAX_LINE >> halved for halved in range(12)):
        records = [
            record if len(record.line().encode()) <= longest else record.model_copy(update={"output": None})
            for record in records
        ]
        lines = "".join(record.line() for record in records).encode()
        if len(lines) <= MAX_EXPANDED and len(body := packed(lines)) <= LIMITS[SAMPLES]:
            return body
    raise Refused(Problem(SAMPLES, "is too large, even without outputs", "lower the run's top_k"))


def read_records(body: bytes) -> dict[int, Record]:
    """Return the records of samples.jsonl.zst by line number; `Refused` names lines."""

    def rows() -> Iterator[tuple[int, Any]]:
        for number, line in sample_lines(body):
            if number > MAX_RECORDS:
                refuse(SAMPLES, f"has more than {MAX_RECORDS:,} lines", "one per question", number)
            yield number, strict_json(line, SAMPLES, number)

    return _checked(rows(), SAMPLES)


def read_prediction_file(path: Path) -> dict[int, Record]:
    """Return the records of a predictions file by line (parquet: row); answers not given are read from outputs."""

    def rows() -> Iterator[tuple[int, Any]]:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            for number, (name, text) in enumerate(read_predictions(path).items(), 1):
                yield number, {"id": name, "output": text}
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if len(line) > MAX_LINE:
                    refuse(str(path), f"more than {MAX_LINE:,} bytes", "shorten the output", number)
                if line.strip():
                    yield number, strict_json(line, str(path), number)

    def completed() -> Iterator[tuple[int, Any]]:
        for number, row in rows():
            if not isinstance(row, dict) or "id" not in row or not row.keys() <= {"id", *PREDICTED}:
                what = f"expected an object with id and any of {', '.join(PREDICTED)}"
                refuse(str(path), what, "leave other keys out", number, quote(row))
            row = PREDICTED | row
            if row["answers"] is None and isinstance(row["output"], str):
                row["answers"] = read_output(row["output"])
            unread = row["output"] is not None and not row["answers"]
            yield number, row | {"outcome": "refused_format" if unread else "ok"}

    if not path.is_file():
        raise FileNotFoundError(
            f'no predictions file at {path}; one {{"id": "...", "output": "..."}} per line of a .jsonl file'
        )
    return _checked(completed(), str(path))


def read_output(text: str) -> list[str]:
    r"""Return the answers that an output gives: in its last ``\boxed{}``, else as ReAct's whole ``finish[...]``.

    At most `MAX_PARTS`, of `MAX_PART` characters each.
    """
    return _readings(text)[0]


def _readings(text: str) -> list[list[str]]:
    box, done = parse_boxed(text), FINISH.fullmatch(text)
    read = [_capped(split_answers(part)) for part in (box, done and done[1]) if part is not None]
    return read if box is not None else [*read, []]


def _capped(answers: list[str]) -> list[str]:
    return [answer[:MAX_PART] for answer in answers[:MAX_PARTS]]


def _checked(rows: Iterable[tuple[int, Any]], file: str) -> dict[int, Record]:
    records: dict[int, Record] = {}

    def problems() -> Iterator[Problem]:
        for number, row in rows:
            try:
                records[number] = Record.model_validate(row)
            except ValidationError as error:
                yield from model_problems(error, file, model=Record, lines=number)

    refuse_if(problems())
    return records
