r"""Words beside what was learned: which of them a text and a rule share (beyond the paper).

A training teaches what follows from what in the words that it has. Of words that no training had, a search knows first
of all that they are the same here and there, and the states of a model's first layers say so only roughly. With
``word_weight`` :math:`\lambda`, what words say is added to what the look-ahead learned; nothing of it is trained:

.. math::

    s(m) \mathrel{+}= \lambda\, c(x, p_m) \left[ 1 - c(z, q_m) \right], \qquad
    g_0(m) \mathrel{+}= \tfrac{\lambda}{w}\, c(y, q_m), \qquad
    \log \sigma(\mathrm{link}(m, j)) \mathrel{+}= \tfrac{\lambda}{w} \left[ c'(q_m, p_j) - 1 \right]

with x the text since the last search, z all that was written so far, y the question, :math:`p_m` and :math:`q_m` a
rule's premise and conclusion, w the weight of the levels, c(x, p) by how much a text covers another, and c' the larger
of both directions. A step says its rule's premise as well as its conclusion, and what was said need not be found again.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from Stemmer import Stemmer
from torch import Tensor

from ..bank.bank import RuleBank

WORD = re.compile(r"[^\W\d_]+|\d+")
"""A run of letters, or of digits: ``Tiny_cat(A)`` has three words."""
POWER = 2.0
"""Of the inverse document frequency, by which a term weighs."""


class SearchText(NamedTuple):
    """What a search knows of the text before it."""

    question: str  # as it was asked
    latest: str  # what was written since the last search
    written: str  # all that was written


class _Terms:
    """The terms of R texts: which texts have each, and what each text's weigh together."""

    def __init__(self, texts: Sequence[Sequence[int]], weight_T: Tensor) -> None:
        self.texts, self.weight_T = texts, weight_T
        text_N = torch.repeat_interleave(torch.tensor([len(terms) for terms in texts], dtype=torch.long))
        term_N = _flat(texts)
        total_R = weight_T.new_zeros(len(texts)).index_add_(0, text_N, weight_T[term_N])
        self.total_R = total_R.clamp_min(torch.finfo(weight_T.dtype).tiny)
        order_N = term_N.argsort(stable=True)
        self.holder_N = text_N[order_N]  # texts, by the terms that they have
        self.bound_T = torch.searchsorted(term_N[order_N], torch.arange(len(weight_T) + 1))

    def shared(self, terms: Sequence[int]) -> Tensor:
        """Return what each text shares with another of some terms, by their weights."""
        terms_K = torch.tensor(terms, dtype=torch.long)
        start_K, stop_K = self.bound_T[terms_K], self.bound_T[terms_K + 1]
        spans = zip(start_K.tolist(), stop_K.tolist(), strict=True)
        holders = torch.cat([self.holder_N[:0], *(self.holder_N[start:stop] for start, stop in spans)])
        weights = self.weight_T[terms_K].repeat_interleave(stop_K - start_K)
        return torch.zeros_like(self.total_R).index_add_(0, holders, weights)


class Words:
    r"""Words, and pairs of neighbours, of a bank's premises and conclusions.

    A text covers another by the weights of the terms that they share, over those of all its terms; a term t weighs
    :math:`\log(1 + (N - n_t + 1/2) / (n_t + 1/2))^2`, where :math:`n_t` of the N different premises and conclusions
    have it, however often a bank keeps them; those that are written differently are different. With a ``stemmer`` of
    Snowball words are compared by stems, where a text says a rule in another form ("greets" for ``Greet(A, B)``).

    Examples
    --------
    >>> words = Words(["the cat is wet", "the cat is dry"], ["it is cold", "it is warm"])
    >>> words.premises("Kit, the cat, is wet.").tolist()
    [1.0, 0.4...]
    >>> Words(["Greet(A, B)"], [""], stemmer="english").premises("A greets B.").tolist()
    [1.0]
    """

    def __init__(self, premises: Sequence[str], conclusions: Sequence[str], stemmer: str = "") -> None:
        self._stemmer = Stemmer(stemmer) if stemmer else None
        self._number: dict[str, int] = {}
        sides, different = [], []
        for texts in (premises, conclusions):
            side = [
                [self._number.setdefault(term, len(self._number)) for term in terms(text, self._stemmer)]
                for text in texts
            ]
            sides.append(side)
            different += [numbers for numbers in dict(zip(texts, side, strict=True)).values() if numbers]
        count_T = torch.bincount(_flat(different), minlength=len(self._number)).float()
        weight_T = torch.log1p((len(different) - count_T + 0.5) / (count_T + 0.5)) ** POWER
        self._premises, self._conclusions = (_Terms(side, weight_T) for side in sides)

    def premises(self, text: str) -> Tensor:
        """Return by how much a text covers each premise, 0 to 1: (U,)."""
        return self._covered(self._premises, text)

    def conclusions(self, text: str) -> Tensor:
        """Return by how much a text covers each conclusion: (V,)."""
        return self._covered(self._conclusions, text)

    def begun(self, text: SearchText, bank: RuleBank) -> Tensor:
        """Return by how much each rule of the bank goes on from a text, and says what it does not: 0 to 1, (M,)."""
        premise = self.premises(text.latest or text.question)[bank.keys.every.cpu()]
        return premise * (1 - self.conclusions(text.written)[bank.values.every.cpu()])

    def links(self, premises_N: Tensor, which: slice = slice(None)) -> Tensor:
        """Return by how much conclusions, or some, and some premises cover each other, the larger of both: (N, V)."""
        side, others = self._premises, self._conclusions
        rows = [
            others.shared(side.texts[at])[which] / torch.minimum(others.total_R[which], side.total_R[at])
            for at in premises_N.tolist()
        ]
        return torch.stack(rows)

    def _covered(self, side: _Terms, text: str) -> Tensor:
        known = [self._number[term] for term in terms(text, self._stemmer) if term in self._number]
        return side.shared(known) / side.total_R


def _flat(texts: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([term for terms in texts for term in terms], dtype=torch.long)


def terms(text: str, stemmer: Stemmer | None = None) -> list[str]:
    """Return the words of a text, lower case, and the pairs of neighbours among them, each once.

    With a stemmer, the stems of those that are no single letter: a rule's variables count for nothing then.

    Examples
    --------
    >>> terms("A cat, a wet cat.")
    ['a', 'cat', 'wet', 'a cat', 'cat a', 'a wet', 'wet cat']
    """
    words = WORD.findall(text.lower())
    if stemmer is not None:
        words = stemmer.stemWords([word for word in words if len(word) > 1 or word.isdigit()])
    return list(dict.fromkeys([*words, *map(" ".join, pairwise(words))]))


_KNOWN: WeakKeyDictionary[RuleBank, tuple[int, dict[str, Words]]] = WeakKeyDictionary()


def words_of(bank: RuleBank, stemmer: str = "") -> Words:
    """Return the words of a bank's keys and values, row by row; made once for each state of the bank and stemmer."""
    version, known = _KNOWN.get(bank, (None, {}))
    if version != bank.version:
        _KNOWN[bank] = bank.version, (known := {})
    if stemmer not in known:
        sides = []
        for side, table in enumerate((bank.keys, bank.values)):
            texts = [""] * len(table.different)
            for text, row in zip(bank.texts, table.every.tolist(), strict=True):
                texts[row] = texts[row] or bank.parts_of(text)[side]
            sides.append(texts)
        known[stemmer] = Words(sides[0], sides[1], stemmer)
    return known[stemmer]
