r"""Look-ahead: a search that plans backward from what is asked (beyond the paper; off unless a configuration says so).

The paper's ``<search>`` knows the state that a chain has reached. Many rules begin there, and only one leads to what is
asked. So a second query, for what is asked, goes against the rules' conclusions, and from there backward:

.. math::

    g_0(m) = y \cdot v_m, \qquad
    g_{h+1}(m) = \max_{j \in W_h} \left[ \log \sigma(\mathrm{link}(m, j)) + g_h(j) \right], \qquad
    s'(m) = s(m) + w \max_h g_h(m)

with y what the text before the search asks for (`SearchReader`), :math:`v_m` the embedding of a rule's conclusion,
:math:`W_h` the best rules of level h, link(m, j) how surely rule m's conclusion meets rule j's premise, and s the
search's own score (equation 4). How many steps are left is not known, so the best level counts. All of it happens in
the encoder's space, on the two matrices that a bank has, so it follows whatever is added, removed or replaced.

Scores of goals are free up to a constant of the search, since every level carries it along once. A level knows a rule
by its conclusion alone, so rules of one conclusion are worked on once.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..kernels import largest
from .reader import SearchReader
from .words import Words

__all__ = ["LookAhead", "Tables", "planned"]

TIE = 0.3
"""Scores (six of the temperatures of training) nearer than this do not say which of two rules comes first."""

ANSWER_MARGIN = 6.0
"""Scores of what is asked, logarithms of likelihoods, that a rule may lack to the best one and answer it as well."""


class Tables(NamedTuple):
    """What the backward levels go over.

    Attributes
    ----------
    keys_UP, values_VP : Tensor
        Embeddings of rules and of conclusions, fp32.
    key_rows_M, value_rows_M : Tensor of int or None
        Where each rule's are; None: one each.
    words : Words or None
        Of the U premises and the V conclusions; None: levels go by embeddings alone.
    word_weight : float
        What they count in a level.
    """

    keys_UP: Tensor
    values_VP: Tensor
    key_rows_M: Tensor | None = None
    value_rows_M: Tensor | None = None
    words: Words | None = None
    word_weight: float = 0.0

    def __len__(self) -> int:
        """Return M, rules."""
        return len(self.keys_UP if self.key_rows_M is None else self.key_rows_M)

    def key_rows(self, rules: Tensor) -> Tensor:
        """Return where the keys of some rules are."""
        return rules if self.key_rows_M is None else self.key_rows_M[rules]

    def of_rules(self, level_BV: Tensor) -> Tensor:
        """Return a number for each rule, (B, M), from one for each conclusion."""
        return level_BV if self.value_rows_M is None else level_BV.index_select(1, self.value_rows_M)

    def value_row(self, rule: int) -> int:
        """Return where the conclusion of a rule is."""
        return rule if self.value_rows_M is None else int(self.value_rows_M[rule])


class LookAhead(nn.Module):
    """What the backward levels are made with.

    Parameters
    ----------
    hidden, encoder_dim : int
        C, width of the model, and P.
    heads, offsets, tail : int
        Of `SearchReader`.

    Attributes
    ----------
    goal : SearchReader
        What is asked, in the encoder's space.
    link : nn.Linear
        From a conclusion's embedding to P + 1 numbers: what its dot product with the next rule's key is taken with, and
        what is added.
    weight : nn.Parameter
        w.
    """

    def __init__(self, hidden: int, encoder_dim: int, heads: int, offsets: int = 0, tail: int = 0) -> None:
        super().__init__()
        self.goal = SearchReader(hidden, encoder_dim, heads, offsets, tail)
        self.link = nn.Linear(encoder_dim, encoder_dim + 1)
        self.weight = nn.Parameter(torch.ones(()))

    def link_logits(self, keys_NP: Tensor, values_MP: Tensor) -> Tensor:
        """Return link(m, n) of M rules and the N that may follow: (N, M).

        The map moves to the few rules that are gone on from, so that it costs nothing per rule of the bank.
        """
        keys_NE = nn.functional.pad(keys_NP, (0, 1), value=1.0)  # E = P + 1
        directions_NP, offsets_N = keys_NE @ self.link.weight.float(), keys_NE @ self.link.bias.float()
        return directions_NP @ values_MP.T + offsets_N[:, None]

    def links(self, rules_N: Tensor, tables: Tables, conclusion: int | None = None) -> Tensor:
        """Return how surely N rules follow conclusions, logarithms: of all, (N, V), or of the one, (N, 1)."""
        which = slice(conclusion, None if conclusion is None else conclusion + 1)
        rows_N = tables.key_rows(rules_N)
        found_NV = nn.functional.logsigmoid(self.link_logits(tables.keys_UP[rows_N], tables.values_VP[which]))
        if tables.words is None:
            return found_NV
        return found_NV + tables.word_weight * (tables.words.links(rows_N, conclusion).to(found_NV) - 1)

    def levels(
        self,
        level_BV: Tensor,
        tables: Tables,
        count: int,
        width: int,
        allowed_BM: Tensor | None = None,
    ) -> list[Tensor]:
        """Return :math:`g_0, g_1, ...` of every rule, ``count`` times (B, M); gradients do not go through the choices.

        Parameters
        ----------
        level_BV : Tensor
            :math:`g_0` of each conclusion.
        tables : Tables
            Rules and conclusions.
        count, width : int
            Levels, and the size of :math:`W_h`.
        allowed_BM : Tensor of bool or None
            Rules that may be gone on from; None: all.
        """
        found = [tables.of_rules(level_BV)]
        width = min(width, len(tables))
        while len(found) < count:
            level_BM = found[-1]
            if allowed_BM is not None:
                level_BM = level_BM.masked_fill(~allowed_BM.to(level_BM.device), -torch.inf)
            rows_BW = largest(level_BM.detach(), width)[1]
            from_BW = level_BM.gather(-1, rows_BW)
            union_U, place_BW = rows_BW.unique(return_inverse=True)
            links_UV = self.links(union_U, tables)
            with torch.no_grad():  # one of the W at a time: all at once would hold B W V numbers
                best_BV, chosen_BV = (
                    torch.full_like(level_BV, -torch.inf),
                    torch.zeros_like(level_BV, dtype=torch.long),
                )
                for at in range(width):
                    next_BV = links_UV[place_BW[:, at]] + from_BW[:, at, None]
                    chosen_BV.masked_fill_(next_BV > best_BV, at)
                    best_BV = torch.maximum(best_BV, next_BV)
            # Of all pairs only the best ones have a gradient, so only those are touched again.
            level_BV = links_UV.gather(0, place_BW.gather(1, chosen_BV)) + from_BW.gather(1, chosen_BV)
            found.append(tables.of_rules(level_BV))
        return found

    def way(
        self,
        row: int,
        rule: int,
        levels: list[Tensor],
        tables: Tables,
        width: int,
    ) -> list[int]:
        """Return the rules by which a rule would lead to what is asked, in order, without itself.

        Parameters
        ----------
        row, rule : int
            Search and rule.
        levels, tables, width
            As `levels` returned and took them; rules that are not allowed have -inf.
        """
        left = int(torch.stack([level_BM[row, rule] for level_BM in levels]).argmax())
        found: list[int] = []
        for level_BM in reversed(levels[:left]):
            (rows_W,) = largest(level_BM[row][None], min(width, len(tables)))[1]
            links_W = self.links(rows_W, tables, tables.value_row(rule))[:, 0]
            rule = int(rows_W[(links_W + level_BM[row, rows_W]).argmax()])
            found.append(rule)
        return found

    def plan(
        self,
        row: int,
        rules: list[int],
        scores: list[float],
        levels: list[Tensor],
        tables: Tables,
        width: int,
        whole: bool = False,
    ) -> tuple[list[int], list[int]]:
        """Return which rules a search reads, and the way of the first.

        They are the best rule and its `way`; those that answer what is asked at once, which are needed in the end; and
        where the best one is such a rule, the best that leads on, with its way, if it is about as good. Others of the
        K begin like the best and lead elsewhere, and a model that reads them takes one for the other.

        Parameters
        ----------
        row : int
            Search.
        rules, scores : list
            The K best rules and what they score, best first.
        levels, tables, width
            As in `way`.
        whole : bool
            Of all rules, those that answer what is asked, too, whatever a search scores them: a prompt reads all that
            the answer needs, since a model takes from what it reads how many steps are to come.
        """
        depths = torch.stack([level_BM[row, rules] for level_BM in levels]).argmax(0).tolist()
        starts = rules[:1]
        if depths[0] == 0:
            on = [
                rule
                for rule, depth, score in zip(rules, depths, scores, strict=True)
                if depth and score >= scores[0] - TIE
            ]
            starts = [*starts, *on[:1]]
        ways = [self.way(row, rule, levels, tables, width) for rule in starts]
        ends = [rule for rule, depth in zip(rules, depths, strict=True) if depth == 0]
        if whole:
            scores_W, rows_W = (each[0] for each in largest(levels[0][row][None], min(width, len(tables))))
            ends = rows_W[scores_W >= scores_W[0] - ANSWER_MARGIN].tolist()
        return list(dict.fromkeys([*starts, *ends, *(rule for way in ways for rule in way)])), ways[0]


def planned(scores_BM: Tensor, levels: list[Tensor], weight: Tensor) -> Tensor:
    """Return what a search goes by: its own scores and the best level's, (B, M)."""
    return scores_BM + weight * reduce(torch.maximum, levels)
