"""Retrieval alone: the question text is the query, no model reads the rules."""

from collections.abc import Iterator

from ..retrievers import Retriever
from . import Batch, Method, Output, component


@component
class Retrieve(Method):
    """Search the pool once with the question."""

    name = "retrieve"

    retriever: Retriever

    @property
    def key(self) -> str:
        """See `Component.key`."""
        return self.retriever.key

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.retriever.label

    def answer(self, batch: Batch, top_k: int) -> Iterator[Output]:
        """Yield the ranked rules of every question."""
        for pool, question in batch:
            hits = self.retriever.search(pool, question.text, top_k)
            yield Output(question.id, retrieved=[hits.ids.tolist()])
