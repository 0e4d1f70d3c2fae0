"""Retrieval alone: the question text is the query, no model reads the rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from . import Batch, Method, Output, component


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

    @property
    def key(self) -> str:
        """Name of the style; see `Component.key`."""
        return self.retriever.key

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.retriever.label

    def answer(self, batch: Batch, top_k: int) -> Iterator[Output]:
        """Yield the ranked rules of every question."""
        for _, members in groupby(batch, key=lambda member: id(member[0])):
            pools, questions = zip(*members, strict=True)
            index = self.retriever.index(pools[0].ids, pools[0].texts, pools[0].rules.parts)
            rankings = index.search([question.text for question in questions], top_k)
            for question, hits in zip(questions, rankings, strict=True):
                yield Output(question.id, retrieved=[hits.ids.tolist()])
