"""A rule memory whose searches read the text before them, go by words too, and look ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention import AttendedRules, RuleTokens
from ..bank.index import rule_scores, version_of
from ..kernels import largest
from ..memory.serving import Kept, Retrieval, RuleMemory, real_tokens
from .config import PlusConfig, PlusProjection
from .lookahead import Tables, planned
from .reader import SearchContext, SearchInput
from .words import SearchText, Words, words_of

MIN_LEVEL_WEIGHT = 1e-3
"""Weight of backward levels up to which words count nothing in them."""
UNREAD = -1e4
"""Added to a score: the rule is not read."""
TRACED_RULES = 4
"""Rules of a backward level in a trace."""


@dataclass(frozen=True)
class PlusRetrieval(Retrieval):
    """One search, for the trace.

    Attributes
    ----------
    backward : list of list of str
        With a look-ahead, the best rules of each backward level, from what is asked: ids, best first.
    way : list of str
        And how the first of the kept rules would lead there: ids of the rules after it.
    read : list of str
        Ids of the rules that token memory reads: with a look-ahead a plan, else the K.
    """

    backward: list[list[str]] = field(default_factory=list, repr=False)
    way: list[str] = field(default_factory=list, repr=False)
    read: list[str] = field(default_factory=list, repr=False)


class SearchResult(NamedTuple):
    """What the last search of a row returned, as rows of the bank: scores of the K, and as in `PlusRetrieval`."""

    scores: dict[int, float]
    read: list[int]
    way: Sequence[int] = ()
    backward: Sequence[list[int]] = ()


class PlusMemory(RuleMemory):
    """A `RuleMemory` whose confidence layer finds rules as `PlusConfig` says; parameters are the same."""

    config: PlusConfig

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._context = SearchContext()
        self._asked: dict[int, Tensor] = {}  # by each layer at the prompt
        self._ended_B = self._opens_B = torch.zeros(0, dtype=torch.bool)  # question, answer: at this forward
        self._inputs: list[SearchInput] = []  # of the prompt (0) and of each <search> of this forward
        self._results: dict[int, SearchResult] = {}
        self._shifts: dict[int, Tensor] = {}  # of the rules that the prompt (0) and each <search> keep
        self._tables_made: tuple[tuple[int, ...], Tables] | None = None

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, before its layers run."""
        super().begin(input_ids, attention_mask, past_length)
        self._real_BT = real_tokens(self._search_BT, attention_mask)
        question_BT, search_BT = self._question_BT, self._search_BT
        if question_BT is not None:
            self._asked, self._ended_B = {}, question_BT[:, -1]
            self._opens_B = (question_BT[:, :-1] & search_BT[:, 1:]).any(-1)
        else:
            self._opens_B = self._ended_B & search_BT[:, 0]
            self._ended_B = torch.zeros_like(self._opens_B)

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | RuleTokens | None:
        """Return what a layer's attention reads besides the text, and note what a search will know."""
        if self.config.search_heads and layer == self.config.confidence_layer and layer in self._projections:
            self._inputs = self._context.read(hidden_BTC, self._search_BT, self._real_BT, self._question_BT)
        return super().attended(layer, hidden_BTC, block)

    def search(
        self, layer: int, query_NHD: Tensor | None, rows: list[int], number: int, allowed_NM: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and bank rows of the best K rules, and note what is worth reading of them."""
        projection: Any = self.adapter[layer]
        levels: list[Tensor] = []
        texts: list[SearchText] = []
        if getattr(projection, "reader", None) is not None:
            known = SearchInput(*(part[rows] for part in self._inputs[number]))
            query_NHD = projection.reader(known).unflatten(-1, (-1, projection.head_dim))
            texts = self.search_texts(rows, known.kind_BT) if self.config.word_weight else []
            levels = self._levels(projection, known, texts, allowed_NM)
        if levels or texts:
            assert query_NHD is not None
            scores_NK, rules_NK = self._search_all(projection, query_NHD, levels, texts, allowed_NM)
        else:
            scores_NK, rules_NK = super().search(layer, query_NHD, rows, number, allowed_NM)
        best = [largest(level_NM, min(TRACED_RULES, level_NM.shape[1]))[1].tolist() for level_NM in levels]
        self._results = {}
        ranked = zip(rows, rules_NK.tolist(), scores_NK.tolist(), strict=True)
        for at, (row, rules, scores) in enumerate(ranked):
            read, way = rules, []  # type: list[int], list[int]
            if levels:
                read, way = projection.lookahead.plan(
                    rules,
                    scores,
                    [level_NM[at] for level_NM in levels],
                    self._tables(),
                    self.config.lookahead_width,
                    whole=not number,
                )
            backward = [level[at] for level in best]
            self._results[row] = SearchResult(dict(zip(rules, scores, strict=True)), read, way, backward)
        return scores_NK, rules_NK

    def _query(self, layer: int, query_BHTD: Tensor, at_B: Tensor, number: int) -> Tensor:
        """Return the queries of a ``<search>``; where a mark of the base's own opens an answer, the prompt's."""
        query_BHD = super()._query(layer, query_BHTD, at_B, number)
        if number > 1 or not self.config.own_mark:
            return query_BHD  # of a token that is trained for later steps
        return torch.where(self._opens_B[:, None, None], self._asked[layer].to(query_BHD), query_BHD)

    def _select(self, layer: int, query_BHD: Tensor, has_B: Tensor | None = None, number: int = 0) -> Kept:
        """Keep each row's best K rules, with what their scores add to those of attention.

        A value cannot tell which of several that look alike was meant, and finding does. What a prompt finds is not
        read where a mark of the base's own opens the answer, and searches once more.
        """
        if not number:
            self._asked[layer] = query_BHD
        kept = super()._select(layer, query_BHD, has_B, number)
        weight, limit = self.config.score_weight, self.config.score_limit
        if not weight:
            return kept
        if layer == self.config.confidence_layer:
            shift_BK = kept[0].new_zeros(len(self._steps_B), kept[0].shape[2])
            for row in self._rows_of(has_B):
                scores_K = shift_BK.new_tensor(list(self._results[row].scores.values()))
                shift_BK[row] = (weight * (scores_K - scores_K.max())).clamp_min(-limit if limit else UNREAD)
            unread = not number and self.config.own_mark
            self._shifts[number] = torch.full_like(shift_BK, UNREAD) if unread else shift_BK
        return *kept, self._shifts[number][:, None, :, None]

    def search_texts(self, rows: Sequence[int], kind_NT: Tensor) -> list[SearchText]:
        """Return what each search goes by in words; token memory alone knows the text."""
        return []

    def retrieval(
        self, row: int, step: int, layer: int, rules: list[int], scores: list[float]
    ) -> PlusRetrieval:
        """Return one search for the trace."""
        ids, result = self.bank.ids, self._results[row]
        backward = [[ids[i] for i in level] for level in result.backward]
        way, read = ([ids[i] for i in part] for part in (result.way, result.read))
        paper = super().retrieval(row, step, layer, rules, scores)
        return PlusRetrieval(**vars(paper), backward=backward, way=way, read=read)

    def _levels(
        self,
        projection: PlusProjection,
        known: SearchInput,
        texts: Sequence[SearchText],
        allowed_NM: Tensor | None,
    ) -> list[Tensor]:
        """Return the backward levels of some searches, (N, M) each; none if the adapter does not look ahead."""
        if projection.lookahead is None or not self.config.lookahead:
            return []
        tables = self._tables()
        goal_NV = projection.lookahead.goal(known) @ tables.values_VP.T
        if tables.words is not None:
            shared_NV = torch.stack([tables.words.conclusions(text.question) for text in texts])
            goal_NV = goal_NV + tables.word_weight * shared_NV.to(goal_NV)
        count, width = self.config.lookahead, self.config.lookahead_width
        levels = projection.lookahead.levels(goal_NV, tables, count, width, allowed_NM)
        return [_among(allowed_NM, level_NM) for level_NM in levels]

    def _search_all(
        self,
        projection: PlusProjection,
        query_NHD: Tensor,
        levels: list[Tensor],
        texts: Sequence[SearchText],
        allowed_NM: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the best K rules by their own scores, words and backward levels; scores all, whatever the index."""
        scale_M = self.bank.inverse_scale(projection)
        parts = rule_scores(self.bank, *projection.encoder_query(query_NHD), scale_M)
        scores_NM = torch.cat([part for _, part in parts], -1)
        if texts:
            begun_NM = torch.stack([self._words().begun(text) for text in texts])
            scores_NM = scores_NM + self.config.word_weight * begun_NM.to(scores_NM)
        if levels:
            assert projection.lookahead is not None
            scores_NM = planned(scores_NM, levels, projection.lookahead.weight.float())
        count, top_k = len(self.bank), self.config.top_k
        return largest(_among(allowed_NM, scores_NM), count if top_k is None else min(top_k, count))

    def _tables(self) -> Tables:
        """Return what the backward levels go over; made once for each state of the bank and of the adapter."""
        bank, layer = self.bank, self.config.confidence_layer
        ahead = None if layer is None else getattr(self.adapter[layer], "lookahead", None)
        weights = () if ahead is None else (ahead.weight, ahead.link.weight, ahead.link.bias)
        state = bank.version, *map(version_of, weights)
        if self._tables_made is None or self._tables_made[0] != state:
            every = torch.arange(len(bank), device=bank.device)
            sides = [
                (side.different.float(), side.at(every) if side.shared else None)
                for side in (bank.keys, bank.values)
            ]
            (keys_UP, key_rows_M), (values_VP, value_rows_M) = sides
            weight, of_levels = self.config.word_weight, 0.0 if ahead is None else float(ahead.weight)
            counts = weight and of_levels > MIN_LEVEL_WEIGHT
            words, share = (self._words(), weight / of_levels) if counts else (None, 0.0)
            tables = Tables(keys_UP, values_VP, key_rows_M, value_rows_M, words, share, {})
            self._tables_made = state, tables
        return self._tables_made[1]

    def _words(self) -> Words:
        return words_of(self.bank, self.config.word_stemmer)


def _among(allowed_NM: Tensor | None, scores_NM: Tensor) -> Tensor:
    """Return scores in which rules that may not be found have -inf."""
    if allowed_NM is None:
        return scores_NM
    return scores_NM.masked_fill(~allowed_NM.to(scores_NM.device), -torch.inf)
