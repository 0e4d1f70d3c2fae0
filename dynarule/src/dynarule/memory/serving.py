"""A rule memory at work: which rules each row of a batch sees in each layer, and when they change.

Prefill: every layer scores all rules with the mean query of the prompt and keeps the best K. Decoding sees those K,
however many rules there are. A ``<search>`` token re-scores all rules at the confidence layer with its own query,
within the same forward, and its row attends to the new K from that token on. A forward over a whole sequence does the
same segment by segment, so it equals generation token by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..attention import AttendedRules, RuleTokens
from ..bank.bank import RuleBank
from ..bank.index import rule_scores
from ..config import DynaRuleConfig
from ..kernels import largest
from ..plus.lookahead import Tables, planned
from ..plus.reader import Asked, SearchContext
from ..plus.words import SearchText, Words, words_of
from ..projection import RuleProjection
from .selection import LayerMemory, check_bank, mean_query, project, sees_own_set


@dataclass(frozen=True)
class Retrieval:
    """One selection of rules, for the trace.

    Attributes
    ----------
    row, step, layer : int
        Row of the batch, reasoning step (0 at prefill), 0-based layer.
    ids, texts : list of str
        The K best rules, best first; or those that another search found, see `TokenMemory`.
    scores : list of float
        Their scores: mean over heads of q~ . k~ / sqrt(D), and what a look-ahead adds; or the other search's.
    backward : list of list of str
        With a look-ahead, the best rules of each backward level, from what is asked: ids, best first.
    way : list of str
        And how the first of the kept rules would lead there: ids of the rules after it.
    read : list of str
        Ids of the rules that token memory reads: with a look-ahead a plan, else the K.
    """

    row: int
    step: int
    layer: int
    ids: list[str]
    texts: list[str] = field(repr=False)
    scores: list[float] = field(repr=False)
    backward: list[list[str]] = field(default_factory=list, repr=False)
    way: list[str] = field(default_factory=list, repr=False)
    read: list[str] = field(default_factory=list, repr=False)


LEAST = 1e-3
"""Weight of backward levels up to which words count nothing in them."""
TOLD = 4
"""Rules of a backward level in a trace."""
Kept = tuple[Tensor, Tensor]
"""Keys and values of the rules that a layer keeps, (B, H, K, D); B is 1 where all rows keep all rules."""


class RuleMemory(LayerMemory):
    """Rules for one batch at a time.

    Parameters
    ----------
    adapter : RuleAdapter, or a model with an adapter
        The trained projections.
    bank : RuleBank
        The rules; may change between and during generations (a later selection sees the change).
    search_token_id : int or None
        Id of ``<search>``; None: the adapter's own, if it has one and ``<search>`` replaces rules in any layer.
    config : DynaRuleConfig or None
        Other settings than the adapter's own, such as another ``top_k``.
    allowed_BM : Tensor of bool or None
        Which rules of the bank each row may keep; None: all. Search is then exact, and each row has at least K.
    allowed_by_layer : mapping of int to Tensor
        The same for single layers.

    Attributes
    ----------
    trace : list of Retrieval
        Selections since the last prompt, at the confidence layer and those that ``<search>`` updates.
    question_mask_BT : Tensor or None
        Set it before a forward over a whole sequence: True for the tokens that select at first.
    """

    def __init__(
        self,
        adapter: RuleAdapter | nn.Module,
        bank: RuleBank,
        search_token_id: int | None = None,
        *,
        config: DynaRuleConfig | None = None,
        allowed_BM: Tensor | None = None,
        allowed_by_layer: Mapping[int, Tensor] | None = None,
    ) -> None:
        super().__init__(adapter, config)
        check_bank(self.adapter, bank)
        self.bank, self.allowed_BM, self.allowed_by_layer = bank, allowed_BM, dict(allowed_by_layer or {})
        self._updated = set(self.config.updated_layers(self.adapter.num_layers))
        if search_token_id is None and self._updated:
            search_token_id = self.config.search_id
        self.search_token_id = search_token_id
        self.trace: list[Retrieval] = []
        self.question_mask_BT: Tensor | None = None
        self._kept: dict[int, Kept] = {}
        # What the confidence layer kept at each <search> of this forward.
        self._chosen: dict[int, Tensor] = {}
        self._search_BT: Tensor | None = None
        self._question_BT: Tensor | None = None
        self._context = SearchContext()
        self._asked: list[Asked] = []
        # By row, of the last selection: scores of the K, the rules that are worth reading, and where the first leads.
        self._scores: dict[int, dict[int, float]] = {}
        self._read: dict[int, list[int]] = {}
        self._ways: dict[int, list[int]] = {}
        self._tabled: tuple[int, Tables] | None = None
        self._real_BT: Tensor | None = None
        self._searches = 0
        self._steps_B = torch.zeros(0, dtype=torch.long)
        self._first_step_B = self._steps_B

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, before its layers run."""
        super().begin(input_ids, attention_mask, past_length)
        first = past_length == 0
        if not first and len(input_ids) != len(self._steps_B):
            raise ValueError(
                f"the cache goes on with {len(input_ids)} rows, and the memory has read the prompts of "
                f"{len(self._steps_B)}; read the same rows' prompts inside the block of `attach`, without a cache"
            )
        search = (
            torch.zeros_like(input_ids, dtype=torch.bool)
            if self.search_token_id is None
            else input_ids == self.search_token_id
        )
        self._question_BT = None
        if first:
            self._question_BT = self._question(search, attention_mask)
            search = search & ~self._question_BT  # a <search> inside the question is text
            self.trace = []
            self._kept = {}
            self._steps_B = torch.zeros(len(input_ids), dtype=torch.long, device=input_ids.device)
        self._search_BT = search
        self._real_BT = self._real(search, attention_mask)
        self._searches = int(search.sum(-1).max()) if search.numel() else 0
        if self._searches:
            self._first_step_B = self._steps_B
            self._steps_B = self._steps_B + search.sum(-1)

    def _question(self, like_BT: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the tokens whose mean query selects at prefill: (B, T) bool, at least one in each row."""
        real = self._real(like_BT, attention_mask)
        question = real if self.question_mask_BT is None else self.question_mask_BT.to(real) & real
        if not bool(question.any(-1).all()):
            row = int((~question.any(-1)).nonzero()[0])
            raise ValueError(
                f"row {row} of the batch has no question token, so nothing says which rules it needs"
            )
        return question

    @staticmethod
    def _real(like_BT: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return which tokens of a forward are no padding: (B, T) bool."""
        if attention_mask is None or attention_mask.ndim != 2:
            return torch.ones_like(like_BT)
        return attention_mask[:, -like_BT.shape[1] :].bool()

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | RuleTokens | None:
        """Return what a layer's attention reads besides the text, and note what a search will know."""
        if self.config.search_heads and layer == self.config.confidence_layer and layer in self._projections:
            assert self._search_BT is not None and self._real_BT is not None
            self._asked = self._context.read(hidden_BTC, self._search_BT, self._real_BT, self._question_BT)
        return super().attended(layer, hidden_BTC, block)

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules; those added to an empty bank are seen from the next question on."""
        return layer in self._kept or (len(self.bank) > 0 and self._question_BT is not None)

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Return what a layer keeps, selected anew at prefill and at a ``<search>``."""
        if self._question_BT is not None:
            self._kept[layer] = self._select(layer, mean_query(query_BHTD, self._question_BT), None)
        (key, value), visible = self._kept[layer], None
        if self._searches and layer in self._updated and len(self.bank):
            (key, value), visible = self._search(layer, query_BHTD)
        return key, value, visible, self._kept[layer][0].shape[2]

    def _search(self, layer: int, query_BHTD: Tensor) -> tuple[Kept, Tensor | None]:
        """Select again at every ``<search>`` of this forward; each token sees the set of the last one before it."""
        search = self._search_BT
        assert search is not None
        segment_BT = search.cumsum(-1)
        rows = torch.arange(len(search), device=search.device)
        latest = self._kept[layer]
        sets = [latest]
        for number in range(1, self._searches + 1):
            here = search & (segment_BT == number)
            has_B = here.any(-1)
            query_BHD = query_BHTD[rows, :, here.int().argmax(-1)]
            new = self._select(layer, query_BHD, has_B, number, self._first_step_B + number)
            sets.append(new)
            latest = _where(has_B, new, latest)
        self._kept[layer] = latest
        if search.shape[1] == 1:
            return latest, None
        key, value = (
            torch.cat([each.expand(len(search), -1, -1, -1) for each in side], 2)
            for side in zip(*sets, strict=True)
        )
        return (key, value), sees_own_set(segment_BT, [key.shape[2] for key, _ in sets])

    def _select(
        self,
        layer: int,
        query_BHD: Tensor,
        wanted_B: Tensor | None,
        number: int = 0,
        step_B: Tensor | None = None,
    ) -> Kept:
        """Keep each row's best K rules of the whole bank, and project only those; without a K, all of them once."""
        projection, rows_BK = self.adapter[layer], self._find(layer, query_BHD, wanted_B, number, step_B)
        key_BKF, value_BKF = project(projection, self.bank.keys_at(rows_BK), self.bank.values_at(rows_BK))
        # Contiguous: every token from now on reads them.
        return projection.heads(key_BKF).contiguous(), projection.heads(value_BKF).contiguous()

    def _find(
        self,
        layer: int,
        query_BHD: Tensor,
        wanted_B: Tensor | None,
        number: int = 0,
        step_B: Tensor | None = None,
    ) -> Tensor:
        """Return the best K rules of each wanted row, (B, K), and trace them; without a K all of them once, (1, K)."""
        projection, config = self.adapter[layer], self.config
        traced = layer in self._updated or layer == config.confidence_layer
        if config.shares(layer):
            rows_BK = self._chosen[number]
        elif traced or config.top_k is not None:
            rows = range(len(query_BHD)) if wanted_B is None else wanted_B.nonzero()[:, 0].tolist()
            allowed_BM = self.allowed_by_layer.get(layer, self.allowed_BM)
            allowed_NM = None if allowed_BM is None else allowed_BM[rows]
            query_NHD, levels, said = query_BHD[rows], [], []  # type: tuple[Tensor, list[Tensor], list[SearchText]]
            with torch.no_grad():
                if layer == config.confidence_layer and projection.reader is not None:
                    asked = Asked(*(each[rows] for each in self._asked[number]))
                    query_NHD = projection.reader(asked).unflatten(-1, (-1, projection.head_dim))
                    said = self._said(rows, asked.kind_BT) if config.word_weight else []
                    levels = self._look_ahead(projection, asked, said, allowed_NM)
                if levels or said:
                    scores_NK, rows_NK = self._plan(projection, query_NHD, levels, said, allowed_NM)
                else:
                    scores_NK, rows_NK = self.bank.search(projection, query_NHD, config.top_k, allowed_NM)
            reads, ways = self._plans(projection, rows_NK, scores_NK, levels, whole=not number)
            self._read, self._ways = (dict(zip(rows, each, strict=True)) for each in (reads, ways))
            self._scores = {
                row: dict(zip(*each, strict=True))
                for row, *each in zip(rows, rows_NK.tolist(), scores_NK.tolist(), strict=True)
            }
            rows_BK = rows_NK.new_zeros(len(query_BHD), rows_NK.shape[1])
            rows_BK[rows] = rows_NK
            if layer == config.confidence_layer:
                self._chosen[number] = rows_BK
            if traced:
                best = [_best(each) for each in levels]
                self._record(layer, rows_NK.tolist(), scores_NK.tolist(), step_B, best)
        return torch.arange(len(self.bank))[None] if config.top_k is None else rows_BK

    def _said(self, rows: Sequence[int], kind_NT: Tensor) -> list[SearchText]:
        """Return what each search goes by in words."""
        raise ValueError(
            f"word_weight={self.config.word_weight} goes by the text, which TokenMemory alone knows; use that, or set "
            "word_weight=0"
        )

    def _look_ahead(
        self, projection: RuleProjection, asked: Asked, said: Sequence[SearchText], allowed_BM: Tensor | None
    ) -> list[Tensor]:
        """Return the backward levels of a search, (B, M) each; none if the adapter does not look ahead."""
        if projection.lookahead is None or not self.config.lookahead:
            return []
        levels, width = self.config.lookahead, self.config.lookahead_width
        tables = self._tables()
        goal_BV = projection.lookahead.goal(asked) @ tables.values_VP.T
        if tables.words is not None:
            shared_BV = torch.stack([tables.words.conclusions(each.question) for each in said])
            goal_BV = goal_BV + tables.word_weight * shared_BV.to(goal_BV)
        found = projection.lookahead.levels(goal_BV, tables, levels, width, allowed_BM)
        if allowed_BM is None:
            return found
        return [level_BM.masked_fill(~allowed_BM.to(level_BM.device), -torch.inf) for level_BM in found]

    def _plans(
        self,
        projection: RuleProjection,
        rows_NK: Tensor,
        scores_NK: Tensor,
        levels: list[Tensor],
        whole: bool,
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the rules that each row reads, see `LookAhead.plan`, and its way; without levels all K and none."""
        found = rows_NK.tolist()
        if not levels:
            return found, [[] for _ in found]
        assert projection.lookahead is not None
        best = zip(found, scores_NK.tolist(), strict=True)
        tables, width = self._tables(), self.config.lookahead_width
        plans = [
            projection.lookahead.plan(at, rules, scores, levels, tables, width, whole)
            for at, (rules, scores) in enumerate(best)
        ]
        return [read for read, _ in plans], [way for _, way in plans]

    def _tables(self) -> Tables:
        """Return keys and values, fp32, whose they are, and their words; made once for each state of the bank."""
        bank, layer = self.bank, self.config.confidence_layer
        if self._tabled is None or self._tabled[0] != bank.version:
            every = torch.arange(len(bank), device=bank.device)
            sides = [(each.different.whole().float(), each.at(every)) for each in (bank.keys, bank.values)]
            (keys_UP, key_rows_M), (values_VP, value_rows_M) = (
                (rows, at if each.shared else None)
                for each, (rows, at) in zip((bank.keys, bank.values), sides, strict=True)
            )
            ahead, weight = None if layer is None else self.adapter[layer].lookahead, self.config.word_weight
            counts = 0.0 if ahead is None else float(ahead.weight)
            words = (self._words(), weight / counts) if weight and counts > LEAST else ()
            self._tabled = bank.version, Tables(keys_UP, values_VP, key_rows_M, value_rows_M, *words)
        return self._tabled[1]

    def _words(self) -> Words:
        return words_of(self.bank, self.config.word_stemmer)

    def _plan(
        self,
        projection: RuleProjection,
        query_BHD: Tensor,
        levels: list[Tensor],
        said: Sequence[SearchText],
        allowed_BM: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the best K rules by their own scores, words and backward levels, as `RuleBank.search` returns them.

        Every rule is scored, whatever the bank's index.
        """
        scale_M = self.bank.inverse_scale(projection)
        parts = rule_scores(self.bank, *projection.encoder_query(query_BHD), scale_M)
        scores_BM = torch.cat([part for _, part in parts], -1)
        if said:
            begun_BM = torch.stack([self._words().begun(each) for each in said])
            scores_BM = scores_BM + self.config.word_weight * begun_BM.to(scores_BM)
        if levels:
            assert projection.lookahead is not None
            scores_BM = planned(scores_BM, levels, projection.lookahead.weight.float())
        if allowed_BM is not None:
            scores_BM = scores_BM.masked_fill(~allowed_BM.to(scores_BM.device), -torch.inf)
        top_k = self.config.top_k
        return largest(scores_BM, len(self.bank) if top_k is None else min(top_k, len(self.bank)))

    def _record(
        self,
        layer: int,
        rules: Sequence[list[int]],
        scores_of: Sequence[list[float]],
        step_B: Tensor | None,
        levels: Sequence[Tensor],
    ) -> None:
        """Trace the rules, best first, and scores that the rows last looked for keep."""
        ids, texts = self.bank.ids, self.bank.texts
        found = zip(self._ways.items(), rules, scores_of, strict=True)
        for at, ((row, way), kept, scores) in enumerate(found):
            step = 0 if step_B is None else int(step_B[row])
            told = [ids[i] for i in kept], [texts[i] for i in kept], scores
            backward = [[ids[i] for i in level_NW[at].tolist()] for level_NW in levels]
            ways = ([ids[i] for i in rows] for rows in (way, self._read[row]))
            self.trace.append(Retrieval(row, step, layer, *told, backward, *ways))


def _best(level_BM: Tensor) -> Tensor:
    return largest(level_BM, min(TOLD, level_BM.shape[1]))[1]


def _where(has_B: Tensor, new: Kept, old: Kept) -> Kept:
    if new[0].shape[1:] != old[0].shape[1:]:  # the bank grew or shrank below K in between
        if bool(has_B.all()):
            return new
        raise ValueError(
            "the bank changed during generation so that rows of one batch would keep different numbers of rules; "
            "keep at least top_k rules in the bank, or generate one row at a time"
        )
    choose = has_B[:, None, None, None]
    return torch.where(choose, new[0], old[0]), torch.where(choose, new[1], old[1])
