"""What the iterative methods share: rounds of retrieval, how their lists become one, and the final reader."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from ruleworld_data.spec import check_name

from ..backends import Completion, Decoding
from ..prompts import Template, shipped_template
from ..retrievers import Hits, rank
from ..retrievers.fuse import RRF
from ..retrievers.random import Random
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import Output, Preview, Step
from .conversation import Asking, Call, Tally, read_answer
from .rag import built_retriever, check_in_prompt, index_of, prepare_retriever


def first_come(rounds: Sequence[Hits], k: int) -> Ids:
    """Keep rules in the order they came: the first round fills the list, later ones what is left of it."""
    return np.array(list(dict.fromkeys(int(i) for hits in rounds for i in hits.ids))[:k], dtype=np.int32)


def max_score(rounds: Sequence[Hits], k: int) -> Ids:
    """Rank rules by their best score of any round; scores of different queries are taken to compare."""
    best: dict[int, float] = {}
    for hits in rounds:
        for rule, score in zip(hits.ids.tolist(), hits.scores.tolist(), strict=True):
            best[rule] = max(score, best.get(rule, -np.inf))
    ids = np.array(list(best), dtype=np.int32)
    return rank(ids, np.array(list(best.values()), dtype=np.float64), k).ids


def rrf_rounds(rounds: Sequence[Hits], k: int) -> Ids:
    """Rank rules by the sum over rounds of 1 / (60 + rank), so that every round has the same say."""
    fused = RRF.fuse_lists(rounds, 60)
    return rank(fused.ids, fused.scores, k).ids


AGGREGATIONS: dict[str, Callable[[Sequence[Hits], int], Ids]] = {
    "rrf_rounds": rrf_rounds,
    "first_come": first_come,
    "max_score": max_score,
}


@dataclass
class Search:
    """The retrieval side of one conversation: every round's list, and the trace."""

    method: Iterative
    pool: Pool
    top_k: int
    tally: Tally
    rounds: list[Hits] = field(default_factory=list)
    trace: list[Step] = field(default_factory=list)

    def find(self, query: str) -> Hits:
        """Search the pool and remember what came."""
        with self.tally.retrieving():
            hits = index_of(self.method.retriever, self.pool).search([query], self.top_k)[0]
        self.rounds.append(hits)
        self.trace.append(Step(query=query, retrieved=hits.ids.tolist()))
        return hits

    def wrote(self, text: str) -> None:
        """Remember what the model wrote."""
        self.trace.append(Step(text=text))

    def collected(self) -> Ids:
        """Return the aggregated list so far, at most ``top_k`` rules."""
        return AGGREGATIONS[self.method.aggregation](self.rounds, self.top_k)

    def texts(self, ids: Ids) -> list[str]:
        """Return rules as the model reads them, at most the method's ``in_prompt``."""
        return self.pool.rules.texts(ids[: self.method.in_prompt], self.pool.representation)


@dataclass(frozen=True)
class Iterative(Asking):
    """Base of IRCoT and ReAct.

    Parameters
    ----------
    retriever : Retriever
    rounds : int
        Searches at most; the paper allows four.
    aggregation : {"rrf_rounds", "first_come", "max_score"}
        How the rounds' lists become the final list, from which the reader answers and recall is computed. The paper
        does not say; with a hundred rules a round and a hundred in all, ``first_come`` ignores all rounds but one.
    step_tokens : int
        Longest thought.
    prompt : str
        Id of the template that the rounds are asked with.
    in_prompt : int or None
        Rules in each prompt or observation, the best ones; None: all that are kept. See `RAG`.

    Attributes
    ----------
    section : str
        The section of that template; a model's own template that has it replaces the method's.
    """

    section: ClassVar[str] = ""

    retriever: Any = None
    rounds: int = 4
    aggregation: str = "rrf_rounds"
    step_tokens: int = 100
    prompt: str = ""
    in_prompt: int | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "retriever", built_retriever(self.retriever))
        if not self.prompt:
            object.__setattr__(self, "prompt", self.template.id)
        check_name("aggregation", self.aggregation, AGGREGATIONS)
        check_in_prompt(self.in_prompt)
        if self.rounds < 1 or self.step_tokens < 1:
            raise ValueError(
                f"rounds and step_tokens must be 1 or more, got {self.rounds} and {self.step_tokens}"
            )

    @property
    def template(self) -> Template:
        """The template of the rounds: the model's own if it has the section, else the method's."""
        own = self.model.template
        return own if own.has(self.section) else shipped_template(self.name)

    @property
    def key(self) -> str:
        """Name of the style; see `Component.key`."""
        return self.name

    def missing(self) -> str | None:
        """What to install, if anything."""
        return super().missing() or self.retriever.missing()

    def preview(self, pool: Pool, question: Question, top_k: int) -> Preview:
        """Return the first prompt; rules drawn at random stand for those that a search would find."""
        return super(Iterative, replace(self, retriever=Random())).preview(pool, question, top_k)

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Load the model and hand the retriever all texts at once."""
        current = self.template.id
        if self.prompt != current:
            raise ValueError(
                f"the run was made for prompt template {self.prompt}, this version has {current}; start a new run"
            )
        super().prepare(pools)
        prepare_retriever(self.retriever, pools)

    def read(self, search: Search, question: Question, **usage: Any) -> Generator[Call, Completion, Output]:
        """Answer afresh from the collected rules, as RAG does; what was thought before is not shown."""
        found = search.collected()
        prompt = self.model.template.render(
            "answer", search.pool.representation, question.text, search.texts(found)
        )
        done = yield Call(prompt, Decoding(self.max_new_tokens))
        return read_answer(
            self.model.template,
            question,
            done,
            retrieved=[found.tolist()],
            trace=search.trace,
            usage={"rounds": len(search.rounds), "round_budget": self.rounds, **usage},
        )
