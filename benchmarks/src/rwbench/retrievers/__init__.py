"""Retrievers: from a pool of rules and a query to ranked rule ids.

One interface: ``retriever.search(pool, query, k)`` returns ids and scores, best first. A retriever only says how to
score; ranking lives here, once, so that ties are broken the same way everywhere: by (-score, rule id), and before the
cut to k. (Top-k routines of search libraries cut first and break ties by
array position; with questions that name only a rule's premise that changes most top-10 lists.)
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..registry import Component, Registry, component
from ..run.data import Ids
from ..run.pools import Pool

Scores = NDArray[np.float64]
Scorer = Callable[[str], Scores]
Parts = dict[str, tuple[str, str]]
"""Premise and conclusion of rules, by text."""

__all__ = ["Hits", "Retriever", "component", "rank"]


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
            Maps a query to float64 scores of shape (M,); ``-inf`` means "not retrieved at all".
        """

    def pool_scorer(self, pool: Pool) -> Scorer:
        """Prepare a pool; a search that takes more of it than texts says so here."""
        return self.scorer(pool.ids, pool.texts)

    def search(self, pool: Pool, query: str, k: int) -> Hits:
        """Return the best ``k`` rules of a pool, fewer if fewer are retrieved; questions share what is prepared."""
        scorer = next((made for who, of, made in _PREPARED if of is pool and who == self), None)
        if scorer is None:
            scorer = self.pool_scorer(pool)
            _PREPARED.append((self, pool, scorer))
        return rank(pool.ids, scorer(query), k)


_PREPARED: deque[tuple[Retriever, Pool, Scorer]] = deque(maxlen=64)
"""Found by comparing: a retriever that has a list or a dict among its fields has no hash."""


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

    Raises
    ------
    ValueError
        If there is not one score a rule, or one is no number: rules would be taken for others, or left out.
    """
    scores = np.asarray(scores, dtype=np.float64)  # the negative of an unsigned number is none
    if scores.shape != ids.shape or np.isnan(scores).any():
        raise ValueError(f"each of {len(ids):,} rules needs a score, -inf to be left out, got {scores!r:.60}")
    keep = np.flatnonzero(scores > -np.inf)
    if len(keep) > k:
        # Everything that ties with the k-th score stays in until the ids have decided.
        values = scores[keep]
        keep = keep[values >= np.partition(values, len(values) - k)[len(values) - k]]
    order = keep[np.lexsort((ids[keep], -scores[keep]))][:k]
    return Hits(ids[order], scores[order])
