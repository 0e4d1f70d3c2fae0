"""Methods that ask a language model: each question is a conversation, and the conversations of a batch go in step.

A method writes down one question's course as a generator: it yields a `Call`, gets the model's `Completion`, and
returns its `Output`. All calls that are due in a batch go to the backend together.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ruleworld_data.scoring import parse_boxed, split_answers

from ..backends import Backend, Completion, Decoding, GoneError
from ..prompts import Prompt, Template
from ..run.data import Question
from ..run.pools import Pool
from . import Method, Output, Preview, Step, Work

Chunk = list[tuple[Pool, Question]]


@dataclass(frozen=True)
class Call:
    """One call of the model."""

    prompt: Prompt
    decoding: Decoding


Conversation = Generator[Call, Completion, Output]


@dataclass
class Tally:
    """What one question has cost so far."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_calls: int = 0
    cost_usd: float | None = None
    retrievals: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, done: Completion) -> None:
        """Add one call; a prompt that was not sent is no call."""
        self.prompt_tokens += done.prompt_tokens
        if done.finish == "context":
            if done.seconds:
                self.seconds["tokenize"] = self.seconds.get("tokenize", 0.0) + done.seconds
            return
        self.calls += 1
        self.completion_tokens += done.completion_tokens
        self.cached_calls += done.cached
        self.seconds["generate"] = self.seconds.get("generate", 0.0) + done.seconds
        if done.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + done.cost_usd

    @contextmanager
    def retrieving(self) -> Iterator[None]:
        """Count one retrieval and its time."""
        start = time.perf_counter()
        yield
        self.retrievals += 1
        self.seconds["retrieve"] = self.seconds.get("retrieve", 0.0) + time.perf_counter() - start

    def usage(self) -> dict[str, Any]:
        """Return the numbers under the names of `rwbench.run.samples`."""
        names = ("calls", "prompt_tokens", "completion_tokens", "cached_calls", "retrievals")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.cost_usd is not None:
            values["cost_usd"] = round(self.cost_usd, 8)
        return values | {"seconds": {stage: round(spent, 6) for stage, spent in self.seconds.items()}}


@dataclass(frozen=True)
class Asking(Method):
    """Base of methods that ask a language model. A subclass sets ``name`` and implements `converse`.

    Parameters
    ----------
    model : Backend
        A plain dict from a spec is built into one.
    max_new_tokens : int
        Longest final answer.
    """

    model: Any = None
    max_new_tokens: int = 512

    def __post_init__(self) -> None:
        if isinstance(self.model, dict):
            object.__setattr__(self, "model", Backend.from_dict(self.model))
        if not isinstance(self.model, Backend):
            raise ValueError(
                f"method {self.name!r} needs a model, got {self.model!r}; type --model NAME, such as --model tiny"
            )
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be 1 or more, got {self.max_new_tokens}")

    @property
    def calls(self) -> int:
        """Most calls per question."""
        return 1

    def missing(self) -> str | None:
        """What to install, if anything."""
        return self.model.missing()

    @abstractmethod
    def converse(self, pool: Pool, question: Question, top_k: int, tally: Tally) -> Conversation:
        """Yield calls and return the question's output; the tally counts the calls, retrievals are its own to count."""
        raise NotImplementedError(
            f"method {self.name!r} must implement converse(pool, question, top_k, tally)"
        )

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Load the model."""
        self.model.prepare()

    def preview(self, pool: Pool, question: Question, top_k: int) -> Preview:
        """Return the first prompt and its length, without asking."""
        first = next(self.converse(pool, question, top_k, Tally()), None)
        if first is None:
            return Preview()
        return Preview(first.prompt.text, self.model.count_tokens(first.prompt), self.calls)

    def run(self, pool: Pool, questions: Sequence[Question], top_k: int) -> Iterator[Output]:
        """Yield the answers on one pool."""
        yield from self.run_pools([(pool, questions)], top_k)

    def run_pools(self, work: Sequence[Work], top_k: int) -> Iterator[Output]:
        """Yield the answers, batch by batch."""
        for chunk, wanted in chunks(work, self.model.batch, self.model.whole_batches):
            outputs = self._in_step(chunk, top_k)
            yield from (output for output in outputs if output.id in wanted)

    def _in_step(self, chunk: Chunk, top_k: int) -> list[Output]:
        tallies = [Tally() for _ in chunk]
        talks = [
            self.converse(pool, question, top_k, tally)
            for (pool, question), tally in zip(chunk, tallies, strict=True)
        ]
        outputs: dict[int, Output] = {}
        said: dict[int, Completion | None] = dict.fromkeys(range(len(talks)))
        while said:
            due: dict[int, Call] = {}
            for place, completion in said.items():
                try:
                    due[place] = next(talks[place]) if completion is None else talks[place].send(completion)
                except StopIteration as end:
                    outputs[place] = replace(end.value, usage=tallies[place].usage() | dict(end.value.usage))
                except GoneError:
                    raise
                except Exception as error:  # one question's failure, and on record
                    outputs[place] = Output(chunk[place][1].id, error=f"{type(error).__name__}: {error}")
            said = {}
            for decoding in dict.fromkeys(call.decoding for call in due.values()):
                places = [place for place, call in due.items() if call.decoding == decoding]
                answers = self.model.generate([due[place].prompt for place in places], decoding)
                for place, completion in zip(places, answers, strict=True):
                    tallies[place].count(completion)
                    if completion.error is not None:
                        id = chunk[place][1].id
                        outputs[place] = Output(id, error=completion.error, usage=tallies[place].usage())
                    else:
                        said[place] = completion
        return [outputs[place] for place in range(len(chunk))]


def chunks(work: Sequence[Work], size: int, whole: bool) -> Iterator[tuple[Chunk, set[str]]]:
    """Yield batches of (pool, question), and which of their questions are wanted.

    Questions that share a pool stay together, as they share a prefix; pools of one question are joined. With
    ``whole``, a batch is made of all of the run's questions and not only of those that are left, so that a resumed run
    computes the same batches; batches with nothing left are skipped.
    """
    batch: Chunk = []
    for pool, left in work:
        wanted = {question.id for question in left}
        members = [(pool, question) for question in (pool.questions if whole else left)]
        if len(pool.questions) > 1:
            yield from _if_wanted(batch, work)
            batch = []
            for start in range(0, len(members), size):
                part = members[start : start + size]
                if found := wanted & {question.id for _, question in part}:
                    yield part, found
        else:
            batch += members
            if len(batch) >= size:
                yield from _if_wanted(batch, work)
                batch = []
    yield from _if_wanted(batch, work)


def _if_wanted(batch: Chunk, work: Sequence[Work]) -> Iterator[tuple[Chunk, set[str]]]:
    members = {question.id for _, question in batch}
    if found := {question.id for _, left in work for question in left} & members:
        yield batch, found


def read_answer(template: Template, question: Question, done: Completion, **rest: Any) -> Output:
    r"""Turn the text of a final answer into an output: what is in the box, and how it ended.

    Parameters
    ----------
    template : Template
        Says which marks are not part of the text.
    question : Question
    done : Completion
    **rest
        Other fields of the output.
    """
    if done.finish == "context":
        return Output(question.id, answers=[], outcome="context_exceeded", **rest)
    text = template.clean(done.text)
    box = parse_boxed(text)
    if box is not None:
        return Output(question.id, answers=split_answers(box), text=text, **rest)
    outcome = "refused_format"
    if done.finish == "length":
        outcome = "length"
    elif done.finish == "filter" or not text.strip():
        outcome = "no_output"
    return Output(question.id, answers=[], text=text, outcome=outcome, **rest)


__all__ = ["Asking", "Call", "Conversation", "Step", "Tally", "chunks", "read_answer"]
