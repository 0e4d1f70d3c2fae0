r"""Words beside what was learned: which of them a text and a rule share (beyond the paper).

A training teaches what follows from what in the words that it has. Of words that no training had, a search knows first
of all that they are the same here and there, and the states of a model's first layers say so only roughly. With
``word_weight`` :math:`\lambda` of `DynaRuleConfig`, what words say is added to what the look-ahead learned:

.. math::

    s(m) \mathrel{+}= \lambda\, c(x, p_m) \left[ 1 - c(z, q_m) \right], \qquad
    g_0(m) \mathrel{+}= \tfrac{\lambda}{w}\, c(y, q_m), \qquad
    \log \sigma(\mathrm{link}(m, j)) \mathrel{+}= \tfrac{\lambda}{w} \left[ c'(q_m, p_j) - 1 \right]

with x the text since the last search, z all that was written so far, y the question, :math:`p_m` and :math:`q_m` a
rule's premise and conclusion, w the weight of the levels, c(x, p) by how much a text covers another, and c' the larger
of both directions. A step says its rule's premise as well as its conclusion, and what was said need not be found again.
Nothing of it is trained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..bank.sources import split_rule

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

WORD = re.compile(r"[^\W\d_]+|\d+")
"""A run of letters, or of digits: ``Tiny_cat(A)`` has three words."""
POWER = 2.0
"""Of the inverse document frequency, by which a term weighs."""


class SearchText(NamedTuple):
    """What a search knows of the text before it.

    Attributes
    ----------
    question : str
        As it was asked.
    latest : str
        What was written since the last search.
    written : str
        All that was written.
    """

    question: str
    latest: str
    written: str


class _Terms(NamedTuple):
    """The terms of R texts: which text has which, and what each text's weigh together."""

    text_N: Tensor
    term_N: Tensor
    total_R: Tensor

    @classmethod
    def of(cls, found: Sequence[Sequence[int]], weight_T: Tensor) -> Self:
        text_N = torch.repeat_interleave(torch.tensor([len(each) for each in found], dtype=torch.long))
        term_N = torch.tensor([term for each in found for term in each], dtype=torch.long)
        total_R = weight_T.new_zeros(len(found)).index_add_(0, text_N, weight_T[term_N])
        return cls(text_N, term_N, total_R.clamp_min(torch.finfo(weight_T.dtype).tiny))

    def shared(self, weight_TB: Tensor) -> Tensor:
        """Return the weight of what each text shares with B others, whose terms weigh so much: (R, B)."""
        some_N = (weight_TB > 0).any(1)[self.term_N]
        found_RB = weight_TB.new_zeros(len(self.total_R), weight_TB.shape[1])
        return found_RB.index_add_(0, self.text_N[some_N], weight_TB[self.term_N[some_N]])


class Words:
    r"""Words, and pairs of neighbours, of a bank's premises and conclusions.

    A text covers another by the weights of the terms that they share, over those of all its terms; a term t weighs
    :math:`\log(1 + (N - n_t + 1/2) / (n_t + 1/2))^2`, where :math:`n_t` of the N premises and conclusions have it.

    Parameters
    ----------
    premises, conclusions : sequence of str
        U and V of them.
    premise_M, conclusion_M : Tensor of int or None
        Which of them each rule has; None: one each.

    Examples
    --------
    >>> words = Words(["the cat is wet", "the cat is dry"], ["it is cold", "it is warm"])
    >>> words.premises("Kit, the cat, is wet.").tolist()
    [1.0, 0.4...]
    """

    def __init__(
        self,
        premises: Sequence[str],
        conclusions: Sequence[str],
        premise_M: Tensor | None = None,
        conclusion_M: Tensor | None = None,
    ) -> None:
        self._premise_M, self._conclusion_M = premise_M, conclusion_M
        sides = [[terms(text) for text in texts] for texts in (premises, conclusions)]
        different = dict.fromkeys(term for side in sides for each in side for term in each)
        self._place = {term: at for at, term in enumerate(different)}
        found = [[[self._place[term] for term in each] for each in side] for side in sides]
        all_N = torch.tensor([at for side in found for each in side for at in each], dtype=torch.long)
        count_T = torch.bincount(all_N, minlength=len(different)).float()
        total = len(premises) + len(conclusions)
        self._weight_T = torch.log1p((total - count_T + 0.5) / (count_T + 0.5)) ** POWER
        self._premises, self._conclusions = (_Terms.of(side, self._weight_T) for side in found)

    def premises(self, text: str) -> Tensor:
        """Return by how much a text covers each premise, 0 to 1: (U,)."""
        return self._covered(self._premises, text)

    def begun(self, said: SearchText) -> Tensor:
        """Return by how much each rule goes on from a text, and says what it does not: 0 to 1, (M,)."""
        premise, conclusion = self.premises(said.latest or said.question), self.conclusions(said.written)
        if self._premise_M is not None:
            premise = premise[self._premise_M]
        if self._conclusion_M is not None:
            conclusion = conclusion[self._conclusion_M]
        return premise * (1 - conclusion)

    def conclusions(self, text: str) -> Tensor:
        """Return by how much a text covers each conclusion: (V,)."""
        return self._covered(self._conclusions, text)

    def links(self, premises_N: Tensor) -> Tensor:
        """Return by how much conclusions and some premises cover each other, the larger of both: (N, V)."""
        side, premises_N = self._premises, premises_N.cpu()  # words stay there, wherever the embeddings are
        mine_MN = side.text_N[:, None] == premises_N
        term_M, at_M = mine_MN.nonzero().T
        weight_TN = self._weight_T.new_zeros(len(self._weight_T), len(premises_N))
        weight_TN[side.term_N[term_M], at_M] = self._weight_T[side.term_N[term_M]]
        least_VN = torch.minimum(self._conclusions.total_R[:, None], side.total_R[premises_N])
        return (self._conclusions.shared(weight_TN) / least_VN).T

    def _covered(self, side: _Terms, text: str) -> Tensor:
        weight_T = torch.zeros_like(self._weight_T)
        known = [self._place[term] for term in terms(text) if term in self._place]
        weight_T[known] = self._weight_T[known]
        return side.shared(weight_T[:, None])[:, 0] / side.total_R


def terms(text: str) -> list[str]:
    """Return the words of a text, lower case, and the pairs of neighbours among them, each once.

    Examples
    --------
    >>> terms("A cat, a wet cat.")
    ['a', 'cat', 'wet', 'a cat', 'cat a', 'a wet', 'wet cat']
    """
    words = WORD.findall(text.lower())
    return list(dict.fromkeys([*words, *map(" ".join, pairwise(words))]))


def words_of(bank: RuleBank) -> Words:
    """Return the words of a bank's keys and values, row by row; made once for each state of the bank."""
    known = _KNOWN.get(bank)
    if known is None or known[0] != bank.version:
        every = torch.arange(len(bank), device=bank.device)
        tables = [(each, each.at(every).cpu()) for each in (bank.keys, bank.values)]
        sides = [[""] * len(table.different) for table, _ in tables]
        for texts, (side, (_, row_M)) in zip(sides, enumerate(tables), strict=True):
            for text, row in zip(bank.texts, row_M.tolist(), strict=True):
                texts[row] = texts[row] or split_rule(text)[side]
        premise_M, conclusion_M = (row_M if table.shared else None for table, row_M in tables)
        known = _KNOWN[bank] = bank.version, Words(sides[0], sides[1], premise_M, conclusion_M)
    return known[1]


_KNOWN: WeakKeyDictionary[RuleBank, tuple[int, Words]] = WeakKeyDictionary()
