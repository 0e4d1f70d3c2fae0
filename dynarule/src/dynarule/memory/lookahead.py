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

import math
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..kernels import largest

__all__ = ["Asked", "LookAhead", "SearchContext", "SearchReader", "Tables", "planned", "token_kinds"]

QUESTION, EARLIER, SINCE, TOKEN = range(4)
"""Kinds of tokens that a search sees: the question's, those of earlier steps, of the last step, and its own."""
KEY_WIDTH = 32
PLACE_WIDTH = 128
PLACE_SCALE = 0.25
NEAR = 0.3
"""Scores (six of the temperatures of training) nearer than this do not say which of two rules comes first."""

ANSWERS = 6.0
"""Scores of what is asked, logarithms of likelihoods, that a rule may lack to the best one and answer it as well."""


class Tables(NamedTuple):
    """What the backward levels go over.

    Attributes
    ----------
    keys_UP, values_VP : Tensor
        Embeddings of rules and of conclusions, fp32.
    key_rows_M, value_rows_M : Tensor of int or None
        Where each rule's are; None: one each.
    """

    keys_UP: Tensor
    values_VP: Tensor
    key_rows_M: Tensor | None = None
    value_rows_M: Tensor | None = None

    def __len__(self) -> int:
        """Return M, rules."""
        return len(self.keys_UP if self.key_rows_M is None else self.key_rows_M)

    def keys_at(self, rules: Tensor) -> Tensor:
        """Return the keys of some rules."""
        return self.keys_UP[rules if self.key_rows_M is None else self.key_rows_M[rules]]

    def of_rules(self, level_BV: Tensor) -> Tensor:
        """Return a number for each rule, (B, M), from one for each conclusion."""
        return level_BV if self.value_rows_M is None else level_BV.index_select(1, self.value_rows_M)

    def value_row(self, rule: int) -> int:
        """Return where the conclusion of a rule is."""
        return rule if self.value_rows_M is None else int(self.value_rows_M[rule])


class Asked(NamedTuple):
    """The text before a search, as the confidence layer reads it.

    Attributes
    ----------
    states_BTC : Tensor
        States of the tokens, fp32.
    kind_BT : Tensor
        `QUESTION`, `EARLIER`, `SINCE` or `TOKEN`; -1 for padding and for what comes after the search.
    token_BC : Tensor
        The state of the search's own token; at the prompt, of the question's last one.
    """

    states_BTC: Tensor
    kind_BT: Tensor
    token_BC: Tensor


class SearchReader(nn.Module):
    """Attention of a search's token over the text before it, by itself, to what it asks a bank.

    In the paper a search asks with its own token's state alone, and the prompt with the mean of its tokens. A base's
    first layers need not have moved what matters into that token, and a mean forgets what stood where.

    Parameters
    ----------
    hidden : int
        C, width of the model.
    out : int
        Width of what is asked.
    heads : int
        H.
    offsets : int
        How many tokens from where the last step is in the question a head tells apart, to each side; 0: it reads by
        content alone. A base that was not pretrained on such questions has no state that says which of several
        independent cases comes next: the step before is looked up in the question, by what both say, and each head
        learns how far from there it reads (location-aware attention; before the first step, how far from the start).
    """

    def __init__(self, hidden: int, out: int, heads: int, offsets: int = 0) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, heads * KEY_WIDTH)
        self.key = nn.Parameter(torch.empty(heads, KEY_WIDTH, hidden))
        self.kind = nn.Parameter(torch.zeros(heads, TOKEN + 1))
        self.out = nn.Linear((heads + 1) * hidden, out)
        self.place = nn.Linear(hidden, PLACE_WIDTH) if offsets else None
        self.offset = nn.Parameter(torch.zeros(2, heads, 2 * offsets + 1)) if offsets else None
        nn.init.normal_(self.key, std=0.05)
        if self.place is not None:
            # A random projection keeps who resembles whom, so it is a look-up from the start.
            nn.init.normal_(self.place.weight, std=1 / math.sqrt(PLACE_WIDTH))
            nn.init.zeros_(self.place.bias)
        for linear in (self.query, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, asked: Asked) -> Tensor:
        """Return what each search asks, fp32 (B, out).

        Keys of the text are never computed: the one query moves into the space of states.
        """
        states_BTC, kind_BT, token_BC = asked
        query_BHD = nn.functional.linear(
            token_BC, self.query.weight.float(), self.query.bias.float()
        ).unflatten(-1, (-1, KEY_WIDTH))
        inward_BHC = torch.einsum("bhd,hdc->bhc", query_BHD, self.key.float()) / math.sqrt(KEY_WIDTH)
        scores_BHT = torch.einsum("bhc,btc->bht", inward_BHC, states_BTC)
        scores_BHT = scores_BHT + self.kind.float().T[kind_BT.clamp_min(0)].transpose(1, 2)
        if self.place is not None:
            scores_BHT = scores_BHT + self._from_last(states_BTC, kind_BT)
        weights_BHT = scores_BHT.masked_fill((kind_BT < 0)[:, None], -torch.inf).softmax(-1)
        read_BHC = torch.einsum("bht,btc->bhc", weights_BHT, states_BTC)
        found = torch.cat([read_BHC.flatten(1), token_BC], -1)
        return nn.functional.linear(found, self.out.weight.float(), self.out.bias.float())

    def _from_last(self, states_BTC: Tensor, kind_BT: Tensor) -> Tensor:
        """Return what the place of the last step adds to each head's scores of the question's tokens: (B, H, T)."""
        assert self.place is not None and self.offset is not None
        question_BT, since_BT = kind_BT == QUESTION, (kind_BT == SINCE).to(states_BTC)
        said_B1 = since_BT.sum(-1, keepdim=True)
        last_BC = torch.einsum("bt,btc->bc", since_BT, states_BTC) / said_B1.clamp_min(1)
        weight, bias = self.place.weight.float(), self.place.bias.float()
        key_BD = nn.functional.linear(last_BC, weight, bias)
        inward_BC, constant_B1 = key_BD @ weight, (key_BD @ bias)[:, None]
        match_BT = PLACE_SCALE * (torch.einsum("bc,btc->bt", inward_BC, states_BTC) + constant_B1)
        first_BT = nn.functional.one_hot(question_BT.int().argmax(-1), question_BT.shape[1]).to(match_BT)
        there_BT = match_BT.masked_fill(~question_BT, -1e9).softmax(-1)
        there_BT = torch.where(said_B1 > 0, there_BT, first_BT)
        # exp of the offsets' biases, summed over where the last step may be; beyond the last offset all is alike.
        tokens, reach = there_BT.shape[1], self.offset.shape[-1] // 2
        place_T = torch.arange(tokens, device=there_BT.device)
        apart_TT = (place_T - place_T[:, None]).clamp(-reach, reach) + reach  # from, to
        moved_WBHT = torch.einsum("bs,whst->wbht", there_BT, self.offset.float().exp()[:, :, apart_TT])
        moved_BHT = torch.where(said_B1[:, :, None] > 0, moved_WBHT[1], moved_WBHT[0])
        return torch.where(question_BT[:, None], moved_BHT.clamp_min(1e-6).log(), 0.0)


class LookAhead(nn.Module):
    """What the backward levels are made with.

    Parameters
    ----------
    hidden, encoder_dim : int
        C, width of the model, and P.
    heads, offsets : int
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

    def __init__(self, hidden: int, encoder_dim: int, heads: int, offsets: int = 0) -> None:
        super().__init__()
        self.goal = SearchReader(hidden, encoder_dim, heads, offsets)
        self.link = nn.Linear(encoder_dim, encoder_dim + 1)
        self.weight = nn.Parameter(torch.ones(()))

    def link_logits(self, keys_NP: Tensor, values_MP: Tensor) -> Tensor:
        """Return link(m, n) of M rules and the N that may follow: (N, M).

        The map moves to the few rules that are gone on from, so that it costs nothing per rule of the bank.
        """
        keys_NE = nn.functional.pad(keys_NP, (0, 1), value=1.0)  # E = P + 1
        directions_NP, offsets_N = keys_NE @ self.link.weight.float(), keys_NE @ self.link.bias.float()
        return directions_NP @ values_MP.T + offsets_N[:, None]

    def levels(
        self,
        goal_BP: Tensor,
        tables: Tables,
        count: int,
        width: int,
        allowed_BM: Tensor | None = None,
    ) -> list[Tensor]:
        """Return :math:`g_0, g_1, ...` of every rule, ``count`` times (B, M); gradients do not go through the choices.

        Parameters
        ----------
        goal_BP : Tensor
            What is asked.
        tables : Tables
            Rules and conclusions.
        count, width : int
            Levels, and the size of :math:`W_h`.
        allowed_BM : Tensor of bool or None
            Rules that may be gone on from; None: all.
        """
        level_BV = goal_BP @ tables.values_VP.T
        found = [tables.of_rules(level_BV)]
        width = min(width, len(tables))
        while len(found) < count:
            level_BM = found[-1]
            if allowed_BM is not None:
                level_BM = level_BM.masked_fill(~allowed_BM.to(level_BM.device), -torch.inf)
            rows_BW = largest(level_BM.detach(), width)[1]
            from_BW = level_BM.gather(-1, rows_BW)
            union_U, place_BW = rows_BW.unique(return_inverse=True)
            links_UV = nn.functional.logsigmoid(self.link_logits(tables.keys_at(union_U), tables.values_VP))
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
            value_1P = tables.values_VP[tables.value_row(rule)][None]
            links_W = nn.functional.logsigmoid(self.link_logits(tables.keys_at(rows_W), value_1P)[:, 0])
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
                if depth and score >= scores[0] - NEAR
            ]
            starts = [*starts, *on[:1]]
        ways = [self.way(row, rule, levels, tables, width) for rule in starts]
        ends = [rule for rule, depth in zip(rules, depths, strict=True) if depth == 0]
        if whole:
            scores_W, rows_W = (each[0] for each in largest(levels[0][row][None], min(width, len(tables))))
            ends = rows_W[scores_W >= scores_W[0] - ANSWERS].tolist()
        return list(dict.fromkeys([*starts, *ends, *(rule for way in ways for rule in way)])), ways[0]


def planned(scores_BM: Tensor, levels: list[Tensor], weight: Tensor) -> Tensor:
    """Return what a search goes by: its own scores and the best level's, (B, M)."""
    return scores_BM + weight * reduce(torch.maximum, levels)


class SearchContext:
    """Keeps what the confidence layer read, from the prompt on: token by token or a whole sequence at once."""

    def __init__(self) -> None:
        self._states: list[Tensor] = []
        self._marks: list[Tensor] = []

    def read(
        self, hidden_BTC: Tensor, search_BT: Tensor, real_BT: Tensor, question_BT: Tensor | None
    ) -> list[Asked]:
        """Take note of a forward's states; return what is known at the prompt and at each of its searches, by number.

        Parameters
        ----------
        hidden_BTC : Tensor
            Inputs of the confidence layer's attention.
        search_BT, real_BT : Tensor of bool
            ``<search>`` tokens; tokens that are no padding.
        question_BT : Tensor of bool or None
            The question's tokens, in the forward that reads a prompt.

        Returns
        -------
        list of Asked
            Number n is about the n-th ``<search>`` of each row in this forward; of rows that have fewer, nothing is
            meant. The first is about the prompt, and means nothing where the forward reads none.
        """
        if question_BT is not None:
            self._states, self._marks = [], []
        question_BT = torch.zeros_like(search_BT) if question_BT is None else question_BT
        self._states.append(hidden_BTC.float())
        self._marks.append(torch.stack([search_BT, real_BT, question_BT]))
        most = int(search_BT.sum(-1).max()) if search_BT.numel() else 0
        if not most and not bool(question_BT.any()):
            return []
        states_BTC = torch.cat(self._states, 1)
        search_BT, real_BT, question_BT = torch.cat(self._marks, -1)
        self._states, self._marks = [states_BTC], [torch.stack([search_BT, real_BT, question_BT])]
        rows = torch.arange(len(states_BTC), device=states_BTC.device)
        place_T = torch.arange(states_BTC.shape[1], device=states_BTC.device)
        segment_BT = search_BT.cumsum(-1)
        first_B = segment_BT[:, -1] - search_BT[:, -hidden_BTC.shape[1] :].sum(
            -1
        )  # searches of earlier forwards
        found = []
        for number in range(most + 1):
            here_BT = search_BT & (segment_BT == (first_B + number)[:, None]) if number else question_BT
            at_B = torch.where(here_BT, place_T, 0).amax(-1)
            kind_BT = token_kinds(question_BT, search_BT, real_BT, at_B)
            found.append(Asked(states_BTC, kind_BT, states_BTC[rows, at_B]))
        return found


def token_kinds(question_BT: Tensor, search_BT: Tensor, real_BT: Tensor, at_B: Tensor) -> Tensor:
    """Return what a search at the places ``at_B`` sees of each token (B, T), see `Asked`."""
    at_B1 = at_B[:, None]
    segment_BT = search_BT.cumsum(-1)
    since_BT = (segment_BT == segment_BT.gather(1, at_B1) - 1) & ~search_BT
    kind_BT = torch.where(question_BT, QUESTION, torch.where(since_BT, SINCE, EARLIER))
    after_BT = torch.arange(search_BT.shape[1], device=at_B.device) > at_B1
    return kind_BT.masked_fill(after_BT | ~real_BT, -1).scatter(1, at_B1, TOKEN)
