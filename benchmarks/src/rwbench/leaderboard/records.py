"""What a submission or a file of predictions says of each question, without a word of gold.

Questions, gold and scores are joined when it is read (`rwbench.leaderboard.judge`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from ruleworld_data.scoring import read_answers

from ..score.samples import OUTCOMES, Sample
from ..spec import json_line
from .files import LIMITS, MAX_EXPANDED, SAMPLES, Refused, packed, quote, validated

MAX_SEARCHES, MAX_RANKED = 32, 100
MAX_RECORDS = 20_000
MAX_OUTPUT = 200_000
MAX_PARTS, MAX_PART = 64, 200
"""Answers kept of an output, and characters of each: gold is far shorter, so what is cut was wrong and stays so."""
MAX_AMOUNT = 10**9


def _distinct(rules: list[int]) -> list[int]:
    if len(set(rules)) != len(rules):
        raise ValueError("a search must name each rule once")
    return rules


Answer = Annotated[str, Field(max_length=MAX_PART)]
Search = Annotated[list[int], Field(max_length=MAX_RANKED), AfterValidator(_distinct)]
Count = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
Cost = Literal["calls", "prompt_tokens", "completion_tokens", "retrievals"]


class Record(BaseModel):
    """One line of samples or predictions; what a line of predictions leaves out follows from its output."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(max_length=80)]
    output: Annotated[str, Field(max_length=MAX_OUTPUT)] | None  # raw text; null if the method writes none
    # A text per sub-question, as the scorer reads them in output; null if the method does not answer.
    answers: Annotated[list[Answer], Field(max_length=MAX_PARTS)] | None
    # Rule ids, best first, one list per search; null if the method retrieves nothing.
    retrieved: Annotated[list[Search], Field(max_length=MAX_SEARCHES)] | None
    outcome: Literal[tuple(name for name in OUTCOMES if name != "failed")]  # type: ignore[valid-type]
    usage: dict[Cost, Count]  # what is known of it; all else that a run logs is left out

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        output = row.get("output")
        written = {} if not isinstance(output, str) else {"answers": answers_in(output)}
        row = {"output": None, "answers": None, "retrieved": None, "usage": {}} | written | row
        if isinstance(row["usage"], dict):  # null is not known
            row["usage"] = {name: amount for name, amount in row["usage"].items() if amount is not None}
        return {"outcome": "refused_format" if written and not row["answers"] else "ok"} | row

    @model_validator(mode="after")
    def _answers_are_in_the_output(self) -> Self:
        if self.answers is not None and self.output is not None:
            read = answers_in(self.output)
            if self.answers != read:
                raise ValueError(f"answers are not what the scorer reads in output: {quote(read)}")
        return self

    @classmethod
    def of_sample(cls, sample: Sample) -> Self:
        """Return what a submission keeps of a run's sample, whatever a model wrote; its scores are the same."""
        output, answers, retrieved = sample["output"], sample["answers"], sample["retrieved"]
        usage: dict[str, Any] = {**sample.get("usage", {})}
        return cls(
            id=sample["id"],
            output=output if len(output or "") <= MAX_OUTPUT else None,
            answers=answers and _capped(answers),
            # No question has so many steps, and recall counts no search beyond them: the scores are the same.
            retrieved=retrieved and retrieved[:MAX_SEARCHES],
            outcome=sample.get("outcome") or "ok",
            # More than so many is no count, but what a server said.
            usage={name: min(usage[name], MAX_AMOUNT) for name in get_args(Cost) if name in usage},
        )


def pack_records(records: Iterable[Record]) -> bytes:
    """Return the samples file of a submission; `Refused` if it would be too large."""
    lines = b"".join(json_line(record.model_dump()) for record in records)
    body = packed(lines)
    if len(lines) > MAX_EXPANDED or len(body) > LIMITS[SAMPLES]:
        raise Refused(f"{SAMPLES}: would be too large ({len(body):,} bytes, packed); shorten the outputs")
    return body


def read_records(lines: Iterable[bytes], file: str) -> dict[int, Record]:
    """Return records by line number; `Refused` names the first line that is none. Blank lines are left out."""
    records = {}
    for number, line in enumerate(lines, 1):
        if number > MAX_RECORDS:
            raise Refused(f"{file}: has more than {MAX_RECORDS:,} lines; one per question")
        if line.strip():
            records[number] = validated(Record, line, f"{file}, line {number}")
    return records


def read_predictions(path: Path) -> dict[int, Record]:
    """Return the records of a predictions file (JSON Lines) by line."""
    if not path.is_file():
        raise FileNotFoundError(f'no predictions file at {path}; lines are {{"id": "...", "output": "..."}}')
    with path.open("rb") as lines:
        return read_records(lines, str(path))


def answers_in(text: str) -> list[str]:
    r"""Return the answers of an output (`read_answers`): at most `MAX_PARTS`, of `MAX_PART` characters each."""
    return _capped(read_answers(text) or [])


def _capped(answers: list[str]) -> list[str]:
    return [answer[:MAX_PART] for answer in answers[:MAX_PARTS]]
