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
"""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..bank.rows import SharedRows, among, largest
from .reader import SearchReader
from .words import Words

TIE = 0.3
"""Scores (six of the temperatures of training) nearer than this do not say which of two rules comes first."""
ANSWER_MARGIN = 6.0
"""Scores of what is asked, logarithms of likelihoods, that a rule may lack to the best one and answer it as well."""
MOST_LINKS = 1 << 24
"""Numbers of links that are kept for the next search, which mostly goes on from the same rules."""


class Tables(NamedTuple):
    """What the backward levels go over: M rules of U premises and V conclusions."""

    keys: SharedRows  # fp32
    values: SharedRows
    words: Words | None = None  # of the U premises and the V conclusions; None: levels go by embeddings alone
    word_weight: float = 0.0  # what they count in a level
    known: dict[int, Tensor] | None = None  # links (V,) of premises that were gone on from; None: none kept

    def of_rules(self, level_BV: Tensor) -> Tensor:
        """Return a number for each rule, (B, M), from one for each conclusion."""
        return level_BV.index_select(1, self.values.every) if self.values.shared else level_BV


class LookAhead(nn.Module):
    """What the backward levels are made with.

    ``goal`` reads what is asked, in the encoder's space. ``link`` maps a conclusion's embedding to P + 1 numbers: what
    its dot product with the next rule's key is taken with, and what is added. ``weight`` is w.
    """

    def __init__(self, hidden: int, encoder_dim: int, heads: int, offsets: int = 0, tail: int = 0) -> None:
        super().__init__()
        self.goal = SearchReader(hidden, encoder_dim, heads, offsets, tail)
        self.link = nn.Linear(encoder_dim, encoder_dim + 1)
        self.weight = nn.Parameter(torch.ones(()))

    def link_logits(self, keys_NP: Tensor, values_MP: Tensor) -> Tensor:
        """Return link(m, n) of M rules and the N that may follow: (N, M)."""
        # The map moves to the few rules that are gone on from, so it costs nothing per rule of the bank.
        keys_NE = nn.functional.pad(keys_NP, (0, 1), value=1.0)  # E = P + 1
        directions_NP, offsets_N = keys_NE @ self.link.weight.float(), keys_NE @ self.link.bias.float()
        return directions_NP @ values_MP.T + offsets_N[:, None]

    def links(self, rules_N: Tensor, tables: Tables, which: slice = slice(None)) -> Tensor:
        """Return how surely N rules follow the V conclusions, or some, logarithms: (N, V)."""
        rows_N, known, count = tables.keys.at(rules_N), tables.known, len(tables.values.different)
        if known is None or len(rows_N) * count > MOST_LINKS or torch.is_grad_enabled():
            return self._links(rows_N, tables, which)
        rows = rows_N.tolist()
        if not known.keys() >= set(rows):
            if (len(known) + len(rows)) * count > MOST_LINKS:
                known.clear()
            new = [row for row in dict.fromkeys(rows) if row not in known]
            known.update(zip(new, self._links(rows_N.new_tensor(new), tables).unbind(), strict=True))
        return torch.stack([known[row][which] for row in rows])

    def _links(self, rows_N: Tensor, tables: Tables, which: slice = slice(None)) -> Tensor:
        logits_NV = self.link_logits(tables.keys.different[rows_N], tables.values.different[which])
        links_NV = nn.functional.logsigmoid(logits_NV)
        if tables.words is None:
            return links_NV
        return links_NV + tables.word_weight * (tables.words.links(rows_N, which).to(links_NV) - 1)

    def levels(
        self, level_BV: Tensor, tables: Tables, count: int, width: int, allowed_BM: Tensor | None = None
    ) -> list[Tensor]:
        """Return :math:`g_0, g_1, ...` of every rule, ``count`` times (B, M), from :math:`g_0` of each conclusion.

        Levels go on from ``width`` rules; those that are not allowed have -inf. Gradients do not go through the
        choices. Rules of one conclusion are worked on once, since a level knows a rule by its conclusion alone.
        """
        width = min(width, len(tables.keys))
        levels = [among(allowed_BM, tables.of_rules(level_BV))]
        while len(levels) < count:
            rows_BW = largest(levels[-1].detach(), width)[1]
            from_BW = levels[-1].gather(-1, rows_BW)
            union_U, place_BW = rows_BW.unique(return_inverse=True)
            links_UV = self.links(union_U, tables)
            with torch.no_grad():  # one of the W at a time: all at once would hold B W V numbers
                best_BV = torch.full_like(level_BV, -torch.inf)
                chosen_BV = torch.zeros_like(level_BV, dtype=torch.long)
                for at in range(width):
                    next_BV = links_UV[place_BW[:, at]] + from_BW[:, at, None]
                    chosen_BV.masked_fill_(next_BV > best_BV, at)
                    best_BV = torch.maximum(best_BV, next_BV)
            # Of all pairs only the best ones have a gradient, so only those are touched again.
            level_BV = links_UV.gather(0, place_BW.gather(1, chosen_BV)) + from_BW.gather(1, chosen_BV)
            levels.append(among(allowed_BM, tables.of_rules(level_BV)))
        return levels

    def way(self, rule: int, levels: list[Tensor], tables: Tables, width: int) -> list[int]:
        """Return the rules by which a rule would lead to what is asked, in order, without itself.

        ``levels`` are those of one search, (M,) each; rules that are not allowed have -inf.
        """
        left = int(torch.stack([level_M[rule] for level_M in levels]).argmax())
        way: list[int] = []
        for level_M in reversed(levels[:left]):
            (rows_W,) = largest(level_M[None], min(width, len(tables.keys)))[1]
            conclusion = int(tables.values.every[rule])
            links_W = self.links(rows_W, tables, slice(conclusion, conclusion + 1))[:, 0]
            rule = int(rows_W[(links_W + level_M[rows_W]).argmax()])
            way.append(rule)
        return way

    def plan(
        self,
        rules: list[int],
        scores: list[float],
        levels: list[Tensor],
        tables: Tables,
        width: int,
        whole: bool = False,
    ) -> tuple[list[int], list[int]]:
        """Return which rules a search reads of the K best, best first, and the way of the first.

        They are the best rule and its `way`; those that answer what is asked at once; and where the best one is such a
        rule, the best that leads on, with its way, if it is about as good. Others of the K begin like the best and lead
        elsewhere, and a model takes one for the other. A ``whole`` plan has all rules that answer what is asked,
        whatever a search scores them, as a prompt needs: a model takes from what it reads how many steps are to come.
        """
        depths = torch.stack([level_M[rules] for level_M in levels]).argmax(0).tolist()
        starts = rules[:1]
        if depths[0] == 0:
            ranked = zip(rules, depths, scores, strict=True)
            onward = [rule for rule, depth, score in ranked if depth and score >= scores[0] - TIE]
            starts = rules[:1] + onward[:1]
        ways = [self.way(rule, levels, tables, width) for rule in starts]
        ends = [rule for rule, depth in zip(rules, depths, strict=True) if depth == 0]
        if whole:
            scores_W, rows_W = (best[0] for best in largest(levels[0][None], min(width, len(tables.keys))))
            ends = rows_W[scores_W >= scores_W[0] - ANSWER_MARGIN].tolist()
        return list(dict.fromkeys([*starts, *ends, *(rule for way in ways for rule in way)])), ways[0]


def planned(scores_BM: Tensor, levels: list[Tensor], weight: Tensor) -> Tensor:
    """Return what a search goes by: its own scores and the best level's, (B, M)."""
    return scores_BM + weight * reduce(torch.maximum, levels)
