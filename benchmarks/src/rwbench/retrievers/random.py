"""The floor: a random ranking."""

import hashlib
from collections.abc import Sequence

import numpy as np
from ruleworld_data.world import mix

from ..run.data import Ids
from . import Retriever, Scorer, Scores, component


@component
class Random(Retriever):
    """Rank by a hash of (seed, query, rule id): the same on every machine and in every pool."""

    name = "random"
    title = "Random rules (floor)"

    seed: int = 0

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Score by hash; the texts do not matter."""

        def score(query: str) -> Scores:
            digest = hashlib.blake2b(f"{self.seed}\x1f{query}".encode(), digest_size=8).digest()
            words = mix(np.array([int.from_bytes(digest, "little")], dtype=np.uint64), ids)
            return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

        return score
