"""Graph retrieval: personalised PageRank over rules that share words, as in HippoRAG (Gutierrez et al. 2024).

Rules and their terms are the nodes of one graph. A walk starts at the question's terms and returns to them now and
then, so what it visits are rules that the question names and rules that lead on from those, several hops away: one
search that sees both ends of a chain.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from ..registry import NotNegative
from ..run.data import Ids
from . import Retriever, Scorer, Scores, component
from .tokenize import identifier_aware, with_pairs


@component
class Graph(Retriever):
    """Rank rules by where a walk from the question's terms spends its time.

    Terms are words and pairs of neighbouring words, so that "jealous horse" is more than its halves; edges and starts
    weigh ``idf ** sharpness``, since a walk through "lose" leads anywhere.
    """

    name = "graph"
    title = "graph (PageRank)"

    damping: Annotated[float, Field(ge=0, lt=1)] = 0.85  # chance that the walk goes on, and starts not again
    sharpness: NotNegative = 2.0

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Build the graph of a pool; scores are the walk's shares, relative to the best rule's."""
        import igraph

        found = [with_pairs(identifier_aware(text)) for text in texts]
        counts = Counter(term for each in found for term in each)
        size = len(texts)
        place = {term: size + i for i, term in enumerate(counts)}
        weight = {
            term: math.log(1 + (size - count + 0.5) / (count + 0.5)) ** self.sharpness
            for term, count in counts.items()
        }
        edges = [(rule, place[term]) for rule, each in enumerate(found) for term in each]
        weights = [weight[term] for each in found for term in each]
        graph = igraph.Graph(n=size + len(place), edges=edges)

        def score(query: str) -> Scores:
            starts = np.zeros(size + len(place))
            for term in with_pairs(identifier_aware(query)):
                if term in place:
                    starts[place[term]] = weight[term]
            if not starts.any():
                return np.full(size, -np.inf)
            walk = graph.personalized_pagerank(reset=starts.tolist(), weights=weights, damping=self.damping)
            shares = np.array(walk)[:size]
            # Rounded, so that rules in the same place of the graph tie. What the walk never reaches is not found.
            return np.where(shares > 0, np.round(shares / max(shares.max(), 1e-300), 9), -np.inf)

        return score
