"""Retrieval alone: the question text is the query, no model reads the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..retrievers import Retriever
from ..run.data import Question
from ..run.pools import Pool
from ..score.scoring import Ties
from . import Method, Output, component


@component
class Retrieve(Method):
    """Search the pool once with the question.

    Parameters
    ----------
    retriever : Retriever
        What ranks the rules; a plain dict from a spec is built into one.
    """

    name = "retrieve"

    retriever: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.retriever, dict):
            object.__setattr__(self, "retriever", Retriever.from_dict(self.retriever))
        if not isinstance(self.retriever, Retriever):
            raise ValueError(f"retriever must be a Retriever such as BM25(), got {self.retriever!r}")

    @property
    def key(self) -> str:
        """Name of the style; see `Component.key`."""
        return self.retriever.key

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.retriever.label

    def missing(self) -> str | None:
        """What to install, if anything."""
        return self.retriever.missing()

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Hand the retriever all texts at once."""
        rules = dict.fromkeys(text for pool in pools for text in pool.texts)
        queries = dict.fromkeys(question.text for pool in pools for question in pool.questions)
        self.retriever.prepare(list(rules), list(queries))

    def run(self, pool: Pool, questions: Sequence[Question], top_k: int) -> Iterator[Output]:
        """Yield the ranked rules of every question."""
        index = self.retriever.index(pool.ids, pool.texts)
        found = index.search([question.text for question in questions], top_k)
        for question, hits in zip(questions, found, strict=True):
            ties = Ties(hits.scores.tolist(), hits.tail.tolist())
            yield Output(question.id, retrieved=[hits.ids.tolist()], ties=ties)
