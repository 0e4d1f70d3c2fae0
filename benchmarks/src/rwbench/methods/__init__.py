"""Methods: what is evaluated. One file per method.

A method is a frozen dataclass whose fields are its hyper-parameters. `Method.run` gets one pool with its
questions and yields one `Output` per question, in order, as soon as it has it: the runner writes each to disk
at once. A method returns retrieved rules (per step), answers, or both; the runner scores whatever is there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ruleworld_data.spec import check_name

from ..registry import Component, Registry, component
from ..run.data import Question
from ..run.pools import Pool
from ..run.samples import OUTCOMES
from ..score.scoring import Ties

__all__ = ["Method", "Output", "Preview", "Step", "Work", "component"]

Work = tuple[Pool, Sequence[Question]]
"""A pool, and those of its questions that are to be answered."""


@dataclass(frozen=True)
class Preview:
    """What a method would ask about a question: its first prompt, the prompt's tokens, calls per question at most."""

    prompt: str | None = None
    tokens: int | None = None
    calls: int = 0


@dataclass(frozen=True)
class Step:
    """One step of a method, for the sample's trace: what was searched, found and written."""

    query: str | None = None
    retrieved: Sequence[int] = ()
    text: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"query": self.query, "retrieved": [int(rule) for rule in self.retrieved], "text": self.text}


@dataclass(frozen=True)
class Output:
    """What a method gives for one question.

    Attributes
    ----------
    id : str
        The question's id; the runner checks it, so that no answer is ever credited to another question.
    retrieved : list of list of int, or None
        Rule ids per step, best first; a method that retrieves once has one step. None: it retrieves nothing.
    stepwise : bool
        The method retrieves anew for every step of its reasoning, even if this time it did so once.
    answers : list of str, or None
        One answer per sub-question. None: it does not answer.
    text : str, or None
        The raw output that the answers were read from.
    usage : mapping
        Costs worth logging; the names are in `rwbench.run.samples`.
    outcome : str
        How it ended, one of `rwbench.run.samples.OUTCOMES`.
    trace : sequence of Step
        What was searched and written on the way, for a method that does so more than once.
    measures : mapping
        What an analysis measured, name -> numbers; the names are in `rwbench.run.samples`.
    ties : Ties, or None
        Scores of a single search, from which the expected recall under ties is computed; never logged.
    error : str, or None
        Why this question failed; it is then counted as failed, not scored.
    """

    id: str
    retrieved: list[list[int]] | None = None
    answers: list[str] | None = None
    text: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = "ok"
    trace: Sequence[Step] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    ties: Ties | None = None
    stepwise: bool = False
    error: str | None = None

    def __post_init__(self) -> None:
        check_name("outcome", self.outcome, OUTCOMES)


class Method(Component):
    """Base of all methods. A subclass sets ``name`` and implements `run`."""

    registry = Registry["type[Method]"]("method", __name__)

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Do once what all pools of a run share, such as encoding their rules in bulk; nothing by default."""

    def preview(self, pool: Pool, question: Question, top_k: int) -> Preview:
        """Return what would be asked, for a dry run; a method without a language model asks nothing."""
        return Preview()

    def run_pools(self, work: Sequence[Work], top_k: int) -> Iterator[Output]:
        """Yield one output per question that is left, over all pools of the run, in order.

        A method that makes batches across pools replaces it. A pool with nothing left comes along with no questions.
        """
        for pool, questions in work:
            if questions:
                yield from self.run(pool, questions, top_k)

    @abstractmethod
    def run(self, pool: Pool, questions: Sequence[Question], top_k: int) -> Iterator[Output]:
        """Yield one output per question, in order.

        Parameters
        ----------
        pool : Pool
            The rules that may be used: ids, texts in the run's representation, typed parts.
        questions : sequence of Question
            A resumed run asks only what is left, so nothing may depend on which questions come together. Gold
            fields are for ceilings only.
        top_k : int
            How many rules to return per step at most.
        """
        raise NotImplementedError(f"method {self.name!r} must implement run(pool, questions, top_k)")
