"""samples.jsonl: one `Sample` per question, appended and flushed, safe to kill at any byte."""

import errno
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any, NotRequired, Self

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import from_json
from ruleworld_data.io import write_whole
from typing_extensions import TypedDict

from ..spec import in_words, json_line

OUTCOMES = {
    "ok": "ended as the method should: with an answer in a box, or with the rules it was asked to find",
    "context_exceeded": "prompt and answer do not fit the model's context; not asked, no answer, scored 0",
    "length": "the answer was cut off at the token limit before a box was closed",
    "refused_format": "the answer ended without a box: prose, another format or another language",
    "no_output": "the model answered with no text (filtered, or all tokens spent on thinking)",
    "budget_exhausted": "an iterative method used up its rounds without finishing by itself",
    "failed": "no answer because of an error (see `error`); not scored, asked again on resume",
}
"""Every value of ``outcome`` and what it means. Where several fit, the first in this order after ``ok`` counts."""

SAMPLES_FILE = "samples.jsonl"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

VOLATILE_USAGE = ("seconds", "cached_calls")
"""Costs that differ between two runs of a spec, as a sample's ``seconds`` do; `samples_sha256` leaves them out."""

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

RuleId = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class TraceStep(TypedDict):
    """What a method did at one step: it searches (``query``, ``retrieved``), writes (``text``), or both."""

    query: str | None
    retrieved: list[RuleId]
    text: str | None


@with_config(OPEN)
class Usage(TypedDict, total=False):
    """What a question cost. What a method has no number for is not there; a method may add numbers of its own."""

    calls: Count  # of the model
    prompt_tokens: Count
    completion_tokens: Count
    retrievals: Count
    cached_calls: int  # answered from disk
    rounds: int  # of an iterative method, out of `round_budget`
    round_budget: int
    finished: int  # whether an iterative method finished by itself: 0 or 1
    bad_actions: int  # that could not be read
    seconds: dict[str, float]  # per stage: retrieve, generate; a batch is shared out evenly


@with_config(OPEN)
class Measures(TypedDict, total=False):
    """What an analysis measured on the question; empty for all other methods."""

    rule_entropy: list[float]  # nats by layer, mean over heads and question tokens
    rule_layers: list[int]  # the 0-based layers of that list
    rule_attention: list[list[float]]  # retrieval step x gold rule in step order; all rules together weigh 1
    rule_attention_step: list[int]  # the gold step of each column


@with_config(STRICT)  # of what it holds, too, but where OPEN stands
class Sample(TypedDict):
    """One question of a run, as one line of samples.jsonl."""

    id: str
    subtask: str
    world_id: str
    fold: int
    output: str | None  # raw text that the answers were read from; null: the method writes none
    answers: list[str] | None  # one per sub-question; null: the method does not answer
    gold_answers: list[str]
    # Rule ids per step, best first (a method that searches once has one step); null: it retrieves nothing.
    retrieved: list[list[RuleId]] | None
    gold_rules: list[list[RuleId]]  # per step
    scores: dict[str, float]  # metric -> value; empty if the question failed
    outcome: NotRequired[str]  # one of `OUTCOMES`
    # Empty for a method that searches once and one that only writes: `retrieved` and `output` say it already.
    trace: NotRequired[list[TraceStep]]
    measures: NotRequired[Measures]
    usage: NotRequired[Usage]
    seconds: float  # wall time from the sample before to this one; a batch's falls on its first question
    error: str | None  # why the question failed; it is then asked again on resume
    run_id: NotRequired[str]  # of the run that asked


_ADAPTER = TypeAdapter(Sample)


def check_sample(value: Any) -> Sample:
    """Return a JSON value if it is a sample, itself and unchanged; a pydantic ValidationError if it is not."""
    _ADAPTER.validate_python(value)
    return value


def read_samples(path: Path) -> list[Sample]:
    """Return the whole lines of a samples file, without the torn last line of a killed run; none if it is not there.

    A ValueError if any other line is not a sample: the file was changed by something else.
    """
    if not path.is_file():
        return []
    *lines, _torn = path.read_bytes().split(b"\n")
    samples = []
    for number, line in enumerate(lines, 1):
        try:
            samples.append(check_sample(from_json(line)))
        except ValueError as error:
            raise ValueError(
                f"{path} line {number} is not a sample ({in_words(error)}): {line[:60]!r}; delete the line and run "
                "again to redo it"
            ) from None
    return samples


class SampleLog:
    """Appends samples to a run's file, which need not exist, and knows which questions are done.

    Opening repairs the file: a torn last line goes, failed questions go (they are asked again), and so does a second
    line of the same question. The repair is written beside the file and renamed, so a kill here loses nothing either.
    """

    def __init__(self, path: Path) -> None:
        kept: dict[str, Sample] = {}
        for sample in read_samples(path):
            if sample["error"] is None:
                kept.setdefault(sample["id"], sample)
        self.done = set(kept)
        body = b"".join(map(json_line, kept.values()))
        # A link in a folder of others would have another file written to.
        if path.is_symlink() or not path.is_file() or path.read_bytes() != body:
            write_whole(path, body)
        self._file: IO[bytes] = path.open("ab")

    def append(self, sample: Sample) -> None:
        """Write one sample and hand it to the operating system before returning."""
        self._file.write(json_line(sample))
        self._file.flush()
        if sample["error"] is None:
            self.done.add(sample["id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def samples_sha256(samples: Sequence[Sample]) -> str:
    """Return a hash of the samples by id, timing left out: what two runs of one spec must agree on."""
    digest = hashlib.sha256()
    for sample in sorted(samples, key=lambda sample: sample["id"]):
        usage = {name: cost for name, cost in sample.get("usage", {}).items() if name not in VOLATILE_USAGE}
        stable = {name: value for name, value in sample.items() if name not in ("seconds", "run_id")}
        digest.update(json_line(stable | {"usage": usage}))
    return digest.hexdigest()
