"""A search from both ends of a chain, by words: DynaRule+'s look-ahead for those that put rules into a prompt.

From what a question states, rules are walked forward, conclusion to premise; from what it asks, backward, as in
`dynarule.plus.lookahead`. A rule that both walks reach lies on a way from one to the other. It needs no model and no
training, and shows what of DynaRule+'s gain is the idea's. It is not from any paper.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from ruleworld_data.environments import import_bm25s

from ..registry import NotNegative, Positive
from ..run.data import Ids
from ..run.pools import Pool
from . import Parts, Retriever, Scorer, Scores, component
from .tokenize import identifier_aware, with_pairs

Places = NDArray[np.int64]
CHUNK = 1 << 16
"""Rules whose terms are compared at once: those of five million are gigabytes."""


@component
class BothEnds(Retriever):
    """Rank rules by how well a way through them leads from what is known to what is asked.

    Terms are words and pairs of neighbouring words, without stop words, variables and amounts; they weigh
    ``idf ** power``. A text covers a premise by the weight of the terms they share, over that of the premise's.
    f_0(m) is how well the query covers the premise of rule m; ``f_{h+1}(j)`` is the most of
    ``f_h(m) * link(m, j) ** sharpness`` over the ``width`` best rules m of level h, where the link is how well the
    conclusion of m covers the premise of j, or the premise the conclusion. The backward levels go from conclusions to
    premises in the same way. With f and g the most of a rule's levels, forward and backward, its score is
    ``f * (floor + g)``: what leads to nothing that is asked may be meant after all.
    """

    name = "both-ends"
    title = "both ends"
    plans: ClassVar[bool] = True

    levels: Positive = 4  # as `lookahead` of `dynarule.plus.PlusConfig`
    width: Positive = 64
    sharpness: Annotated[float, Field(gt=0)] = 2.0  # what is almost a premise is less of one
    power: NotNegative = 2.0  # of the inverse document frequency
    floor: NotNegative = 0.1  # what a rule counts that leads to nothing that is asked

    def pool_scorer(self, pool: Pool) -> Scorer:
        """Index the pool by the parts that are given, and by those that are found in the other texts."""
        return self.scorer(pool.ids, pool.texts, pool.rules.parts)

    def scorer(self, ids: Ids, texts: Sequence[str], parts: Parts | None = None) -> Scorer:
        """Index premises and conclusions."""
        from dynarule.bank import parts_of

        place: dict[str, int] = {}  # the column of each term
        said = [(parts or {}).get(text) or parts_of(text) for text in texts]
        before, after = (_Side([both[side] for both in said], place) for side in (0, 1))
        before.terms.resize((before.terms.shape[0], len(place)))
        counts = before.counts + after.counts
        for at in range(0, len(texts), CHUNK):
            (one, other) = (side.terms[side.of[at : at + CHUNK]] for side in (before, after))
            counts = counts - one.multiply(other).sum(0)
        weights = np.log(1 + (len(texts) - counts + 0.5) / (counts + 0.5)) ** self.power
        before.weigh(weights)
        after.weigh(weights)

        def walk(level: Scores, leave: _Side, reach: _Side) -> Scores:
            """Return the best level, from level 0 on, of each side that is reached."""
            best = level
            for _ in range(self.levels - 1):
                chosen = reach.best(level, self.width)
                if not len(chosen):
                    break
                left = leave.of[chosen]
                links = reach.shared(leave.terms[left])
                links /= np.maximum(np.minimum.outer(leave.totals[left], reach.totals), 1e-300)
                level = (level[reach.of[chosen], None] * links**self.sharpness).max(0)
                best = np.maximum(best, level)
            return best

        def covered(text: str, side: _Side) -> Scores:
            """Return by how much a text covers each premise or conclusion."""
            row = _matrix([[place[term] for term in content(text) if term in place]], len(place))
            return np.asarray(side.shared(row)[0] / np.maximum(side.totals, 1e-300))

        def score(query: str) -> Scores:
            lines = query.split("\n")
            goal = walk(covered(lines[0], after), before, after)
            reached = walk(covered(lines[-1], before), after, before)
            # Rounded, so that rules with the same words tie; what no walk reaches is not found.
            found = np.round(reached[before.of] * (self.floor + goal[after.of]), 9)
            return np.where(found > 0, found, -np.inf)

        return score


class _Side:
    """The premises or the conclusions of M rules, each different one once, as a set of weighted terms.

    Five million rules have seven thousand premises and eighty thousand conclusions, and the links of a walk are theirs.
    """

    of: Places  # which of the U different ones a rule has, (M,)
    terms: Any  # of each, a sparse array (U, V)
    totals: Scores  # what these weigh, (U,), from `weigh` on

    def __init__(self, texts: Iterable[str], place: dict[str, int]) -> None:
        number: dict[str, int] = {}
        self.of = np.array([number.setdefault(text, len(number)) for text in texts], dtype=np.int64)
        rows = [[place.setdefault(term, len(place)) for term in content(text)] for text in number]
        self.terms = _matrix(rows, len(place))
        self._size = np.bincount(self.of, minlength=len(rows))

    @property
    def counts(self) -> Scores:
        """In how many rules each term stands here."""
        return np.asarray(self.terms.T @ self._size)

    def weigh(self, weights: Scores) -> None:
        """Say what each term weighs."""
        self.totals = self.terms @ weights
        self._weighted = self.terms.multiply(weights).T.tocsr()

    def shared(self, rows: Any) -> Scores:
        """Return the weight of the terms that each row shares with each premise or conclusion."""
        return np.asarray((rows @ self._weighted).toarray())

    def best(self, level: Scores, count: int) -> Places:
        """Return the rules with the highest levels above 0, at most ``count``; of equals the first."""
        if not len(level):
            return np.empty(0, dtype=np.int64)
        order = np.argsort(-level)
        enough = int(np.searchsorted(np.cumsum(self._size[order]), count))
        least = level[order[min(enough, len(order) - 1)]]
        rules = np.flatnonzero(((level >= least) & (level > 0))[self.of])
        return rules[np.argsort(-level[self.of[rules]], kind="stable")[:count]]


def _matrix(rows: Sequence[Sequence[int]], width: int) -> Any:
    """Return a sparse matrix with ones in these columns of each row."""
    from scipy.sparse import csr_array

    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([column for row in rows for column in row], dtype=np.int64)
    return csr_array((np.ones(len(columns)), columns, ends), shape=(len(rows), width))


def content(text: str) -> list[str]:
    """Return what a text says: its words and pairs of words, each once; stop words, variables and amounts say nothing.

    Examples
    --------
    >>> content("If A loses 1 strong fin, it will be in the harbor.")
    ['lose', 'strong', 'fin', 'harbor', 'lose strong', 'strong fin', 'fin harbor']
    """
    words = [word for word in identifier_aware(text) if len(word) > 1 and not word.isdigit()]
    return with_pairs([word for word in words if word not in _stop_words()])


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    return frozenset(identifier_aware(" ".join(import_bm25s().stopwords.STOPWORDS_EN)))
