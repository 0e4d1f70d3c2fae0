"""What the iterative methods share: rounds of retrieval, how their lists become one, and the final reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import ClassVar, Literal

import numpy as np
from ruleworld_data.prompts import Prompt, Template, answer_template, parse_template
from ruleworld_data.spec import VERSIONS

from ..registry import Positive, check_same
from ..retrievers import Hits, rank
from ..retrievers.fuse import fuse
from ..run.data import Ids, Question
from ..run.pools import Pool
from ..score.samples import TraceStep
from . import trace_step
from .conversation import Conversation, UsageCounter
from .rag import RAG


def rrf_rounds(rounds: Sequence[Hits], k: int) -> Ids:
    """Rank rules by the sum over rounds of 1 / (60 + rank), so that every round has the same say."""
    fused = fuse(rounds, 60)
    return rank(fused.ids, fused.scores, k).ids


def in_turn(rounds: Sequence[Hits], k: int) -> Ids:
    """Take the best rule of every round, the newest first, then their second bests, and so on."""
    order = sorted(
        (place, -number, int(rule))
        for number, hits in enumerate(rounds)
        for place, rule in enumerate(hits.ids)
    )
    return np.array(list(dict.fromkeys(rule for *_, rule in order))[:k], dtype=np.int32)


AGGREGATIONS: dict[str, Callable[[Sequence[Hits], int], Ids]] = {"rrf_rounds": rrf_rounds, "in_turn": in_turn}


@dataclass
class Search:
    """The retrieval side of one conversation: every round's list, and the trace."""

    method: Iterative
    pool: Pool
    question: Question
    top_k: int
    usage: UsageCounter
    rounds: list[Hits] = field(default_factory=list)
    trace: list[TraceStep] = field(default_factory=list)

    def find(self, query: str) -> Hits:
        """Search the pool and remember what came; a retriever that plans gets the question as well."""
        if self.method.retriever.plans and query != self.question.text:
            query = f"{self.question.text}\n{query}"
        with self.usage.retrieving():
            hits = self.method.retriever.search(self.pool, query, self.top_k)
        self.trace.append(trace_step(query=query, retrieved=hits.ids.tolist()))
        self.rounds.append(self.method.above_share(hits))
        return self.rounds[-1]

    def log(self, text: str) -> None:
        """Add what the model wrote to the trace."""
        self.trace.append(trace_step(text=text))

    def merged(self) -> Ids:
        """Return the aggregated list so far, at most ``top_k`` rules."""
        return AGGREGATIONS[self.method.aggregation](self.rounds, self.top_k)

    def prompt(self, rules: Sequence[str] = (), section: str = "", **fields: str) -> Prompt:
        """Return the prompt of a round."""
        section = section or self.method.section
        form, question = self.pool.representation, self.question.asked
        return self.method.template.render(section, form, question, rules, **fields)

    def costs(self, **more: int) -> dict[str, int]:
        """Return the rounds and their budget, for the sample's usage."""
        return {"rounds": len(self.rounds), "round_budget": self.method.rounds, **more}

    def read(self, **usage: int) -> Conversation:
        """Answer afresh from the merged rules, as RAG does; what was thought before is not shown."""
        ids = self.merged()
        rest = {"retrieved": [ids.tolist()], "trace": self.trace, "usage": self.costs(**usage)}
        return (yield from self.method.read(self.pool, self.question, ids, **rest))


@cache
def shipped_template(name: str, version: str = VERSIONS[0]) -> Template:
    """Return the template of a method's rounds for a version of the data, from the file beside it."""
    name += ".toml" if version == VERSIONS[0] else f"-{version}.toml"
    return parse_template(files(__package__).joinpath(name).read_bytes(), name)


@dataclass(frozen=True)
class Iterative(RAG):
    """Base of IRCoT, ReAct and Stepwise RAG; ``score_share`` is what a round keeps, by the best score of that round."""

    section: ClassVar[str] = ""  # of the template; a model's own template that has it replaces the method's

    rounds: Positive = 4  # searches at most; the paper allows four
    # How the rounds' lists become the final one, from which the reader answers and recall is computed; the paper does
    # not say.
    aggregation: Literal["rrf_rounds", "in_turn"] = "rrf_rounds"
    step_tokens: int = 100  # longest thought
    prompt: str = ""  # id of the template that the rounds are asked with; empty: the current one
    # Rules in each prompt or observation, the best ones; None: all that are kept.
    in_prompt: Positive | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        if not self.prompt:
            object.__setattr__(self, "prompt", self.template.id)

    @property
    def search_label(self) -> str:
        """The retriever, and the rounds and their aggregation where these are not the paper's."""
        kind = type(self)
        rounds = "" if self.rounds == kind.rounds else f", {self.rounds} searches"
        merged = "" if self.aggregation == kind.aggregation else f", {self.aggregation.replace('_', ' ')}"
        return f"{self.retriever.label}{rounds}{merged}"

    @property
    def template(self) -> Template:
        """The template of the rounds: the model's own if it has the section, else the method's."""
        own = self.model.template
        if own.has(self.section) or own.request:
            return own
        versions = (version for version in VERSIONS if answer_template(version) == own)
        return shipped_template(self.name, next(versions, VERSIONS[0]))

    @property
    def key(self) -> str:
        """See `Component.key`."""
        return self.name

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Check the template, then load the model."""
        check_same("prompt template", self.prompt, self.template.id)
        super().prepare(pools)
