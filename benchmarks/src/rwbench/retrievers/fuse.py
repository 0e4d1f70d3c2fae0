"""Reciprocal rank fusion."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from ..registry import Positive
from ..run.data import Ids
from . import Hits, Retriever, Scorer, Scores, component, rank


@component
class RRF(Retriever):
    """Sum of ``1 / (k + rank)`` over each part's list, ranks from 1 (Cormack et al. 2009).

    A rule missing from a list gets nothing from it; a rule in no list is not retrieved.
    """

    name = "rrf"

    parts: Annotated[tuple[Retriever, ...], Field(strict=False, min_length=2)]
    k: Annotated[int, Field(ge=0)] = 60  # fusion constant
    depth: Positive = 100  # length of each part's list

    @property
    def label(self) -> str:
        """Name in reports."""
        names = " + ".join(part.label.split(" (")[0] for part in self.parts)
        return f"RRF ({names})" + ("" if self.k == 60 else f", k={self.k}")

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Prepare every part; scores are sums of reciprocal ranks."""
        scorers = [part.scorer(ids, texts) for part in self.parts]
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]

        def score(query: str) -> Scores:
            out = np.full(len(ids), -np.inf)
            fused = fuse([rank(ids, part(query), self.depth) for part in scorers], self.k)
            out[order[np.searchsorted(ordered, fused.ids)]] = fused.scores
            return out

        return score


def fuse(lists: Sequence[Hits], k: int) -> Hits:
    """Return the sums of ``1 / (k + rank)`` of every rule in the lists, in no particular order."""
    ids = np.concatenate([hits.ids for hits in lists])
    gains = np.concatenate([1.0 / (k + 1 + np.arange(len(hits.ids))) for hits in lists])
    found, slots = np.unique(ids, return_inverse=True)
    # Rounded: 1/61 + 1/62 must tie with 1/62 + 1/61.
    return Hits(found, np.round(np.bincount(slots, weights=gains, minlength=len(found)), 12))
