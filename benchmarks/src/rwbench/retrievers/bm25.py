"""BM25 in Lucene's form, indexed by bm25s and ranked by `rank`."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from ruleworld_data.environments import lucene_bm25

from ..registry import NotNegative, Share
from ..run.data import Ids
from . import Retriever, Scorer, Scores, component
from .tokenize import TOKENIZERS

LABELS = {"naive": "BM25 (naive tokens)", "aware": "BM25"}


@component
class BM25(Retriever):
    """Sum over query terms of ``idf * tf / (tf + k1 * (1 - b + b * length / mean length))``.

    ``idf = ln(1 + (M - df + 0.5) / (df + 0.5))``. A term that a query repeats counts each time. As in Lucene,
    a rule without any query term is not retrieved.
    """

    name = "bm25"

    tokenizer: Literal["naive", "aware"] = "aware"  # splits identifiers, and stems; naive: at white space
    k1: NotNegative = 1.5  # saturation of term counts
    b: Share = 0.75  # weight of rule length

    @property
    def key(self) -> str:
        """See `Component.key`."""
        return f"bm25-{self.tokenizer}"

    @property
    def label(self) -> str:
        """Name in reports."""
        standard = (self.k1, self.b) == (1.5, 0.75)
        return LABELS[self.tokenizer] + ("" if standard else f", k1={self.k1:g}, b={self.b:g}")

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Index the pool with bm25s."""
        split = TOKENIZERS[self.tokenizer]
        engine = lucene_bm25([list(split(text)) for text in texts], k1=self.k1, b=self.b, dtype="float64")

        def score(query: str) -> Scores:
            if not (terms := engine.get_tokens_ids(list(split(query)))):
                return np.full(len(texts), -np.inf)
            values = engine.get_scores_from_ids(terms)
            # Rounded, so that rules with the same terms tie whatever order the terms were added in.
            return np.where(values > 0, np.round(values, 9), -np.inf)

        return score
