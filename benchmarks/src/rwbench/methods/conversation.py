"""Methods that ask a language model: each question is a conversation, and those of a batch advance together.

A method writes down one question's course as a generator: it yields a `Call`, gets the model's `Completion`, and
returns its `Output`. All calls that are due in a batch go to the backend together.
"""

import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ruleworld_data.prompts import Prompt, Template
from ruleworld_data.scoring import read_answers

from ..backends import Backend, Completion, Decoding, GoneError
from ..retrievers.random import Random
from ..run.data import Question
from ..run.pools import Pool
from . import Batch, Method, Output


@dataclass(frozen=True)
class Call:
    """One call of the model."""

    prompt: Prompt
    decoding: Decoding


Conversation = Generator[Call, Completion, Output]


@dataclass
class UsageCounter:
    """What one question has cost so far."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_calls: int = 0
    retrievals: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by stage

    def count(self, done: Completion) -> None:
        """Add one call; a prompt that was not sent is no call."""
        self.prompt_tokens += done.prompt_tokens
        if done.finish == "context":
            return
        self.calls += 1
        self.completion_tokens += done.completion_tokens
        self.cached_calls += done.cached
        self.seconds["generate"] += done.seconds

    @contextmanager
    def retrieving(self) -> Iterator[None]:
        """Count one retrieval and its time."""
        start = time.perf_counter()
        yield
        self.retrievals += 1
        self.seconds["retrieve"] += time.perf_counter() - start

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers under the names of `rwbench.score.samples`."""
        return vars(self) | {"seconds": {stage: round(spent, 6) for stage, spent in self.seconds.items()}}


@dataclass(frozen=True)
class ModelMethod(Method):
    """Base of methods that ask a language model. A subclass sets ``name`` and implements `converse`."""

    model: Backend
    max_new_tokens: int = 512  # longest final answer

    @abstractmethod
    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Yield calls and return the question's output; the calls are counted in ``usage``, retrievals are not."""

    def first_prompt(self, pool: Pool, question: Question, top_k: int) -> tuple[str | None, int]:
        """Return it without asking; random rules stand for those of a search."""
        stand_in: dict[str, Any] = {"retriever": Random()} if hasattr(self, "retriever") else {}
        method = replace(self, **stand_in)
        first = next(method.converse(pool, question, top_k, UsageCounter()), None)
        if first is None:
            return None, 0
        return first.prompt.text, self.model.excess(first.prompt, first.decoding)

    def answer(self, batch: Batch, top_k: int) -> list[Output]:
        """Hold the conversations of a batch side by side; return their outputs."""
        usages = [UsageCounter() for _ in batch]
        conversations = [
            self.converse(pool, question, top_k, usage)
            for (pool, question), usage in zip(batch, usages, strict=True)
        ]
        outputs: dict[int, Output] = {}
        replies: dict[int, Completion | None] = dict.fromkeys(range(len(batch)))
        while replies:
            due: dict[int, Call] = {}
            for place, reply in replies.items():
                try:
                    due[place] = conversations[place].send(reply)  # type: ignore[arg-type]
                except StopIteration as end:
                    outputs[place] = replace(end.value, usage=usages[place].to_dict() | dict(end.value.usage))
                except GoneError:
                    raise
                except Exception as error:  # one question's failure, and on record
                    outputs[place] = Output(batch[place][1].id, error=f"{type(error).__name__}: {error}")
            replies = {}
            for decoding in dict.fromkeys(call.decoding for call in due.values()):
                places = [place for place, call in due.items() if call.decoding == decoding]
                completions = self.model.generate([due[place].prompt for place in places], decoding)
                for place, completion in zip(places, completions, strict=True):
                    usages[place].count(completion)
                    if completion.error is None:
                        replies[place] = completion
                    else:
                        id, usage = batch[place][1].id, usages[place].to_dict()
                        outputs[place] = Output(id, error=completion.error, usage=usage)
        return [outputs[place] for place in range(len(batch))]


def read_answer(template: Template, question: Question, done: Completion, **rest: Any) -> Output:
    """Turn the text of a final answer into an output, whose other fields follow: the box, and how it ended."""
    if done.finish == "context":
        return Output(question.id, answers=[], outcome="context_exceeded", **rest)
    text = template.clean(done.text)
    if (answers := read_answers(text)) is not None:
        return Output(question.id, answers=answers, text=text, **rest)
    outcome = "refused_format"
    if done.finish == "length":
        outcome = "length"
    elif done.finish == "filter" or not text.strip():
        outcome = "no_output"
    return Output(question.id, answers=[], text=text, outcome=outcome, **rest)


def final_answer(
    method: Any, question: Question, prompt: Prompt, begun: str = "", **rest: Any
) -> Conversation:
    """Ask for the answer, or for the end of one whose beginning the model has written; see `read_answer`."""
    done = yield Call(replace(prompt, begun=begun), Decoding(method.max_new_tokens))
    text = method.model.without_marks(begun) + done.text
    return read_answer(method.model.template, question, replace(done, text=text), **rest)
