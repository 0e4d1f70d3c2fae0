"""Retrievers: from a pool of rules and queries to ranked rule ids.

One interface: ``retriever.index(ids, texts).search(queries, k)`` returns ids and scores, best first. A
retriever only says how to score; ranking lives here, once, so that ties are broken the same way everywhere:
by (-score, rule id), and before the cut to k. (Top-k routines of search libraries cut first and break ties by
array position; with questions that name only a rule's premise that changes most top-10 lists.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..registry import Component, Registry, component
from ..run.data import Ids
from ..run.pools import Pool

Scores = NDArray[np.float64]
Scorer = Callable[[Sequence[str]], Scores]
Parts = dict[str, tuple[str, str]]
"""Premise and conclusion of rules, by text."""

__all__ = ["Hits", "Index", "Retriever", "component", "pool_index", "rank"]


class Hits(NamedTuple):
    """Ranked rules of one query, best first: ``ids`` int32 and ``scores`` float64, at most k of each."""

    ids: Ids
    scores: Scores


class Retriever(Component):
    """Base of all retrievers. A subclass sets ``name`` and implements `scorer`."""

    registry = Registry["type[Retriever]"]("retriever", __name__)
    plans: ClassVar[bool] = False
    """Whether a query may have two lines: what is asked in the end, and what the search knows."""

    @abstractmethod
    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Prepare one pool for search.

        Parameters
        ----------
        ids : ndarray of int32, shape (M,)
        texts : sequence of str, length M

        Returns
        -------
        callable
            Maps Q queries to float64 scores of shape (Q, M); ``-inf`` means "not retrieved at all".
        """
        raise NotImplementedError(f"retriever {self.name!r} must implement scorer(ids, texts)")

    def index(self, ids: Ids, texts: Sequence[str], parts: Parts | None = None) -> Index:
        """Return a searchable index of the pool; ``parts`` are those that a rule's owner says, by its text."""
        return Index(np.asarray(ids, dtype=np.int32), self.scorer(ids, texts))


@dataclass(frozen=True)
class Index:
    """One pool, ready for search."""

    ids: Ids
    scorer: Scorer

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Return the best ``k`` rules of every query; fewer if fewer are retrieved."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not queries:
            return []
        return [rank(self.ids, row, k) for row in self.scorer(queries)]


_INDEXES: deque[tuple[Retriever, Pool, Index]] = deque(maxlen=64)


def pool_index(retriever: Retriever, pool: Pool) -> Index:
    """Return the index of a pool, made once for the questions that share it."""
    for known, owner, index in _INDEXES:
        if owner is pool and known == retriever:
            return index
    made = retriever.index(pool.ids, pool.texts, pool.rules.parts)
    _INDEXES.append((retriever, pool, made))
    return made


def rank(ids: Ids, scores: Scores, k: int) -> Hits:
    """Order one query's rules by (-score, rule id) and keep the first ``k``.

    Parameters
    ----------
    ids : ndarray of int32, shape (M,)
    scores : ndarray of float64, shape (M,)
        Rules with score ``-inf`` are left out.
    k : int

    Returns
    -------
    Hits
    """
    keep = np.flatnonzero(scores > -np.inf)
    if len(keep) > k:
        # Everything that ties with the k-th score stays in until the ids have decided.
        values = scores[keep]
        keep = keep[values >= np.partition(values, len(values) - k)[len(values) - k]]
    order = keep[np.lexsort((ids[keep], -scores[keep]))][:k]
    return Hits(ids[order], scores[order])
