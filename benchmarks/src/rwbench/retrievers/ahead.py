"""BM25 that looks ahead: DynaRule+'s backward levels with words in the place of embeddings (not from any paper).

What is asked is matched with the rules' conclusions, and from the best of them backward, conclusion by premise, as in
`dynarule.memory.lookahead`. So a step's search prefers, of the rules that fit its words, the one that leads to the
question's end. It shows what of DynaRule+'s gain is the idea's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..run.data import Ids
from . import Retriever, Scorer, Scores, component
from .bm25 import BM25
from .tokenize import identifier_aware

NEWS = 0.6
"""Part of a line's best score that the words it adds must reach to stand for it; a first step adds none that matter."""


@component
class Ahead(Retriever):
    """Rank rules by how well their premises fit the last line of a query and lead to what its first line asks.

    Every line of a chain names its creature, which would outweigh what has become of it: what counts are the words that
    a line adds to the question. With s(m) their BM25 score for a rule's premise, g_0(m) that of its conclusion for what
    is asked, and link(m, j) how well the conclusion of m says the premise of j, all as parts of the best: g_{h+1}(m) is
    the most of ``link(m, j) ** sharpness * g_h(j)`` over the ``width`` best rules j of level h, and a rule's score is
    s(m) plus the most of its levels.

    Parameters
    ----------
    levels, width : int
        As of `dynarule.DynaRuleConfig`.
    sharpness : float
        What is almost a premise is none.
    """

    name = "ahead"
    plans: ClassVar[bool] = True

    levels: int = 4
    width: int = 16
    sharpness: float = 4.0

    def __post_init__(self) -> None:
        if self.levels < 1 or self.width < 1 or self.sharpness <= 0:
            raise ValueError(
                "looking ahead needs levels >= 1, width >= 1 and sharpness > 0, got "
                f"levels={self.levels}, width={self.width} and sharpness={self.sharpness}"
            )

    @property
    def label(self) -> str:
        """Name in reports."""
        return "BM25 with look-ahead"

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Index rules and conclusions."""
        from dynarule.bank import conclusion_of, premise_of

        engine = BM25()
        premises = [premise_of(text) for text in texts]
        of_premises = engine.scorer(ids, premises)
        of_conclusions = engine.scorer(ids, [conclusion_of(text) for text in texts])

        def backward(asked: str) -> Scores:
            """Return the best level of each rule."""
            level = _relative(of_conclusions([asked])[0])
            best = level
            for _ in range(self.levels - 1):
                chosen = np.argsort(-level, kind="stable")[: self.width]
                chosen = chosen[level[chosen] > 0]
                if not len(chosen):
                    break
                links = of_conclusions([premises[rule] for rule in chosen])
                level = np.max(
                    [
                        _relative(link) ** self.sharpness * level[rule]
                        for link, rule in zip(links, chosen, strict=True)
                    ],
                    axis=0,
                )
                best = np.maximum(best, level)
            return best

        def known(asked: str, line: str) -> Scores:
            """Return the scores of the premises for what a line adds; for all of it, where that is next to nothing."""
            old = set(identifier_aware(asked))
            news = " ".join(word for word in identifier_aware(line) if word not in old)
            of_all, of_news = (_relative(row, 1.0) for row in of_premises([line, news]))
            return of_news if of_news.max() > NEWS * of_all.max() else of_all

        def score(queries: Sequence[str]) -> Scores:
            lines = [query.split("\n") for query in queries]
            goals = {asked: backward(asked) for asked in {each[0] for each in lines}}
            total = np.stack(
                [np.round(_relative(known(each[0], each[-1])) + goals[each[0]], 9) for each in lines]
            )
            # Not found: neither fits the line nor leads anywhere.
            return np.where(total > 0, total, -np.inf)

        return score


def _relative(scores: Scores, best: float | None = None) -> Scores:
    """Return scores as parts of the best; what is not found has none."""
    found = np.where(scores > -np.inf, scores, 0.0)
    return found / (best or max(float(found.max()), 1e-300))
