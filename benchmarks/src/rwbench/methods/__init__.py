"""Methods: what is evaluated. One file per method.

A method is a frozen dataclass whose fields are its hyper-parameters. `Method.answer` gets a batch of questions, each
with its pool, and yields one `Output` per question, in order, as soon as it has it: the runner writes each to disk at
once. A method returns retrieved rules (per step), answers, or both; the runner scores whatever is there.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, ClassVar

from ruleworld_data.spec import check_name

from ..registry import Component, Registry, component
from ..run.data import Question
from ..run.pools import Pool
from ..score.samples import OUTCOMES, TraceStep

__all__ = ["Batch", "Method", "Output", "batches", "component", "trace_step"]

Batch = Sequence[tuple[Pool, Question]]
"""Questions that are answered together, each with the pool of rules that it may use."""


def trace_step(query: str | None = None, retrieved: Sequence[int] = (), text: str | None = None) -> TraceStep:
    """Return one step of a method, for the sample's trace: what was searched, found and written."""
    return {"query": query, "retrieved": list(retrieved), "text": text}


@dataclass(frozen=True)
class Output:
    """What a method gives for one question; of usage and measures the names are in `rwbench.score.samples`."""

    id: str  # the question's; it is checked, so that no answer is ever credited to another question
    # Rule ids per step, best first; a method that retrieves once has one step. None: it retrieves nothing.
    retrieved: list[list[int]] | None = None
    answers: list[str] | None = None  # one per sub-question; None: it does not answer
    text: str | None = None  # the raw output that the answers were read from
    usage: Mapping[str, Any] = field(default_factory=dict)  # costs worth logging
    outcome: str = "ok"  # how it ended, one of `rwbench.score.samples.OUTCOMES`
    trace: Sequence[TraceStep] = ()  # what was searched and written on the way, where that was more than once
    measures: Mapping[str, Any] = field(default_factory=dict)  # what an analysis measured, name -> numbers
    error: str | None = None  # why this question failed; it is then counted as failed, not scored

    def __post_init__(self) -> None:
        check_name("outcome", self.outcome, OUTCOMES)


class Method(Component):
    """Base of all methods. A subclass sets ``name`` and implements `answer`.

    A field called ``model`` (a `Backend`) is made ready before the first question.
    """

    registry = Registry["type[Method]"]("method", __name__)
    # It retrieves anew for every step of its reasoning, even where it happens to do so once; it is scored step by step.
    stepwise: ClassVar[bool] = False

    @property
    def batch_size(self) -> int | None:
        """Questions that `answer` gets at once, what its model takes; None: all that share a pool or have their own."""
        return getattr(getattr(self, "model", None), "batch", None)

    @property
    def whole_batches(self) -> bool:
        """Whether what shares a batch can change the last bits of an output, so that a resumed run must repeat it."""
        return getattr(getattr(self, "model", None), "whole_batches", False)

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Do once what all pools of a run share: load the model."""
        if model := getattr(self, "model", None):
            model.prepare()

    def first_prompt(self, pool: Pool, question: Question, top_k: int) -> tuple[str | None, int]:
        """Return the prompt that would be sent first (None: none, or not known before), and its `Backend.excess`."""
        return None, 0

    def run(self, pools: Sequence[Pool], done: Collection[str], top_k: int) -> Iterator[Output]:
        """Yield one output per question that is not done, by id, over all pools of the run, in order."""
        for batch in batches(pools, done, self.batch_size, self.whole_batches):
            yield from (output for output in self.answer(batch, top_k) if output.id not in done)

    @abstractmethod
    def answer(self, batch: Batch, top_k: int) -> Iterable[Output]:
        """Yield one output per question, in order.

        Parameters
        ----------
        batch : sequence of (Pool, Question)
            The rules that may be used (ids, texts in the run's representation, typed parts), and the question. A
            resumed run asks only what is left, so nothing may depend on which questions come together. Gold fields are
            for ceilings only.
        top_k : int
            How many rules to return per step at most.
        """


def batches(pools: Sequence[Pool], done: Collection[str], size: int | None, whole: bool) -> Iterator[Batch]:
    """Yield the questions that are not done, in batches.

    Questions that share a pool stay together, as they share a prefix; pools of one question are joined. With
    ``whole``, a batch is made of all of the run's questions and not only of those that are left, so that a resumed run
    computes the same batches; batches with nothing left are skipped.
    """
    groups: list[list[tuple[Pool, Question]]] = []
    for alone, some in groupby(pools, key=lambda pool: len(pool.questions) == 1):
        members = [[(pool, q) for q in pool.questions if whole or q.id not in done] for pool in some]
        groups += [[*chain(*members)]] if alone else members
    for group in filter(None, groups):
        for start in range(0, len(group), size or len(group)):
            batch = group[start : start + (size or len(group))]
            if any(question.id not in done for _, question in batch):
                yield batch
