"""A rule memory at work: which rules each row of a batch sees in each layer, and when they change.

Prefill: every layer scores all rules with the mean query of the prompt and keeps the best K. Decoding sees those K,
however many rules there are. A ``<search>`` token re-scores all rules at the confidence layer with its own query,
within the same forward, and its row attends to the new K from that token on. A forward over a whole sequence does the
same segment by segment, so it equals generation token by token.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..config import DynaRuleConfig
from .selection import LayerMemory, check_bank, mean_query, project

Kept = tuple[Tensor, ...]
"""Keys and values of the rules that a layer keeps, (B, H, K, D); B is 1 where all rows keep all rules.

A third one, if any, is added to their scores, (B, 1, K, 1).
"""


@dataclass(frozen=True)
class Retrieval:
    """One selection of rules, for the trace.

    Attributes
    ----------
    row, step, layer : int
        Row of the batch, reasoning step (0 at prefill), 0-based layer.
    ids, texts : list of str
        The K best rules, best first.
    scores : list of float
        What they were ranked by: in the paper the mean over heads of q~ . k~ / sqrt(D).
    """

    row: int
    step: int
    layer: int
    ids: list[str]
    texts: list[str] = field(repr=False)
    scores: list[float] = field(repr=False)

    @property
    def support(self) -> float:
        """The best rule's share of all that was found, softmax of their scores: 1/K where none stands out."""
        return 1 / sum(exp(score - self.scores[0]) for score in self.scores) if self.scores else 0.0


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
    tokenizer : PreTrainedTokenizerBase or None
        What a memory that reads rules' texts needs.
    config : DynaRuleConfig or None
        Other settings than the adapter's own, such as another ``top_k``.
    allowed_BM : Tensor of bool or None
        Which rules of the bank each row may keep, at least K; None: all. Search is then exact.
    allowed_by_layer : mapping of int to Tensor
        The same for single layers.

    Attributes
    ----------
    trace : list of Retrieval
        Selections since the last prompt, at the confidence layer and at others that ``<search>`` updates.
    question_mask_BT : Tensor or None
        Set it before a forward over a whole sequence: True for the tokens that select at first. For that one alone.
    """

    def __init__(
        self,
        adapter: RuleAdapter | nn.Module,
        bank: RuleBank,
        search_token_id: int | None = None,
        *,
        tokenizer: Any = None,
        config: DynaRuleConfig | None = None,
        allowed_BM: Tensor | None = None,
        allowed_by_layer: Mapping[int, Tensor] | None = None,
    ) -> None:
        super().__init__(adapter, config)
        check_bank(self.adapter, bank)
        if not isinstance(self, self.config.memory_class()):
            raise ValueError(
                f"rules of this adapter are read by a {self.config.memory_class().__name__}, not a "
                f"{type(self).__name__}; make it with dynarule.rule_memory(model, tokenizer, bank)"
            )
        self.bank, self.allowed_BM, self.allowed_by_layer = bank, allowed_BM, dict(allowed_by_layer or {})
        self._updated = set(self.config.updated_layers(self.adapter.num_layers))
        if search_token_id is None and self._updated:
            search_token_id = self.config.search_id
        self.search_token_id = search_token_id
        self.trace: list[Retrieval] = []
        self.question_mask_BT: Tensor | None = None
        self._kept: dict[int, Kept] = {}
        # What the confidence layer kept at the prompt (0) and at each <search> of this forward.
        self._chosen: dict[int, Tensor] = {}
        self._shifts: dict[int, Tensor] = {}  # of the rules that the prompt (0) and each <search> keep
        self._search_BT = torch.zeros(0, 0, dtype=torch.bool)
        self._question_BT: Tensor | None = None  # in the forward that reads a prompt
        self._searches = 0
        self._steps_B = self._first_step_B = torch.zeros(0, dtype=torch.long)

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, before its layers run."""
        super().begin(input_ids, attention_mask, past_length)
        search_BT = torch.zeros_like(input_ids, dtype=torch.bool)
        if self.search_token_id is not None:
            search_BT = input_ids == self.search_token_id
        self._question_BT = None
        if not past_length:
            self._question_BT = self._question(search_BT, attention_mask)
            search_BT = search_BT & ~self._question_BT  # a <search> inside the question is text
            self.trace, self._kept = [], {}
            self._steps_B = torch.zeros(len(input_ids), dtype=torch.long, device=input_ids.device)
        self._search_BT = search_BT
        self._searches = int(search_BT.sum(-1).max()) if search_BT.numel() else 0
        if self._searches:
            self._first_step_B = self._steps_B
            self._steps_B = self._steps_B + search_BT.sum(-1)

    def _question(self, like_BT: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the tokens whose mean query selects at prefill: (B, T) bool, at least one in each row."""
        real = real_tokens(like_BT, attention_mask)
        given, self.question_mask_BT = self.question_mask_BT, None
        question = real if given is None else given.to(real) & real
        if not bool(question.any(-1).all()):
            row = int((~question.any(-1)).nonzero()[0])
            raise ValueError(f"row {row} of the batch has no question token, which says what rules it needs")
        return question

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules; those added to an empty bank are seen from the next question on."""
        return layer in self._kept or (len(self.bank) > 0 and self._question_BT is not None)

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, float | Tensor]:
        """Return what a layer keeps, selected anew at prefill and at a ``<search>``."""
        if self._question_BT is not None:
            self._kept[layer] = self._select(layer, mean_query(query_BHTD, self._question_BT))
        kept, visible = self._kept[layer], None
        if self._searches and layer in self._updated and len(self.bank):
            kept, visible = self._select_again(layer, query_BHTD)
        key, value, *shifts = kept
        shift = shifts[0].transpose(2, 3) if shifts else self.length_shift(self._kept[layer][0].shape[2])
        return key, value, visible, shift

    def _each_search(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the number of a search, which rows have so many in this forward, and where: (B,) each."""
        count_BT = self._search_BT.cumsum(-1)
        for number in range(1, self._searches + 1):
            here_BT = self._search_BT & (count_BT == number)
            yield number, here_BT.any(-1), here_BT.int().argmax(-1)

    def _select_again(self, layer: int, query_BHTD: Tensor) -> tuple[Kept, Tensor | None]:
        """Select at every ``<search>`` of this forward; each token sees the set of the last one before it."""
        search_BT, latest = self._search_BT, self._kept[layer]
        sets = [latest]
        for number, has_B, at_B in self._each_search():
            query_BHD = query_BHTD[torch.arange(len(at_B), device=at_B.device), :, at_B]
            sets.append(self._select(layer, query_BHD, has_B, number))
            latest = _where(has_B, sets[-1], latest)
        self._kept[layer] = latest
        if search_BT.shape[1] == 1:
            return latest, None
        kept = tuple(
            torch.cat([part.expand(len(search_BT), -1, -1, -1) for part in side], 2)
            for side in zip(*sets, strict=True)
        )
        sizes = torch.tensor([key.shape[2] for key, *_ in sets], device=search_BT.device)
        return kept, search_BT.cumsum(-1)[:, :, None] == torch.repeat_interleave(sizes)

    def _select(self, layer: int, query_BHD: Tensor, has_B: Tensor | None = None, number: int = 0) -> Kept:
        """Keep each row's best K rules of the whole bank, and project only those; without a K, all of them once."""
        projection, rows_BK = self.adapter[layer], self._find(layer, query_BHD, has_B, number)
        key_BKF, value_BKF = project(projection, self.bank.keys[rows_BK], self.bank.values[rows_BK])
        # Contiguous: every token from now on reads them.
        kept = projection.heads(key_BKF).contiguous(), projection.heads(value_BKF).contiguous()
        config = self.config
        if not config.score_weight or not (layer == config.confidence_layer or config.shares(layer)):
            return kept
        if layer == config.confidence_layer:
            self._shifts[number] = self._weigh(rows_BK.shape[1], has_B, number).to(kept[0])
        return *kept, self._shifts[number][:, None, :, None]

    def _weigh(self, count: int, has_B: Tensor | None, number: int) -> Tensor:
        """Return what scores add to the attention to each rule that a search keeps, (B, K): 0 for the best."""
        shift_BK = torch.zeros(len(self._steps_B), count)
        below_NK = self._scores_NK - self._scores_NK[:, :1]
        shift_BK[self._rows_of(has_B)] = self.config.score_weight * below_NK.float().cpu()
        return shift_BK

    def _find(self, layer: int, query_BHD: Tensor | None, has_B: Tensor | None, number: int) -> Tensor:
        """Return the best K rules (TopK, equation 3) of the rows that search, (B, K), and trace them.

        Without a K all rules, (1, M).
        """
        config = self.config
        if config.shares(layer):
            return self._chosen[number]
        traced = layer in self._updated or layer == config.confidence_layer
        allowed_BM = self._allowed(layer)
        if traced or config.top_k is not None:
            rows = self._rows_of(has_B)
            with torch.no_grad():
                scores_NK, rules_NK = self.search(
                    layer,
                    None if query_BHD is None else query_BHD[rows],
                    rows,
                    number,
                    None if allowed_BM is None else allowed_BM[rows],
                )
            self._scores_NK = scores_NK  # of the latest search
            kept_BK = rules_NK.new_zeros(len(self._steps_B), rules_NK.shape[1])
            kept_BK[rows] = rules_NK
            if layer == config.confidence_layer:
                self._chosen[number] = kept_BK
            if traced:
                for row, *found in zip(rows, rules_NK.tolist(), scores_NK.tolist(), strict=True):
                    step = int(self._first_step_B[row]) + number if number else 0
                    self.trace.append(self.retrieval(row, step, layer, *found))
        return torch.arange(len(self.bank))[None] if config.top_k is None else kept_BK

    def _allowed(self, layer: int) -> Tensor | None:
        """Return which rules each row may keep, (B, M); refuse a mask that would let it keep others."""
        allowed_BM = self.allowed_by_layer.get(layer, self.allowed_BM)
        if allowed_BM is not None:
            shape = len(self._steps_B), len(self.bank)
            kept = min(self.config.top_k or shape[1], shape[1])
            boolean = allowed_BM.dtype == torch.bool
            if allowed_BM.shape != shape or not boolean or int(allowed_BM.sum(-1).min()) < kept:
                raise ValueError(
                    f"allowed_BM must be boolean, {shape}, and allow each row the {kept} rules that it keeps, got "
                    f"{tuple(allowed_BM.shape)} and {allowed_BM.sum(-1).tolist()!s:.40} rules; set a smaller top_k"
                )
        return allowed_BM

    def _rows_of(self, has_B: Tensor | None) -> list[int]:
        return list(range(len(self._steps_B))) if has_B is None else has_B.nonzero()[:, 0].tolist()

    def search(
        self, layer: int, query_NHD: Tensor | None, rows: list[int], number: int, allowed_NM: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and bank rows of the best K rules, (N, K) each, best first; a subclass may find others.

        It is the n-th ``<search>`` of this forward (0: the prompt) of these rows of the batch, see `RuleBank.search`.
        """
        assert query_NHD is not None
        return self.bank.search(self.adapter[layer], query_NHD, self.config.top_k, allowed_NM)

    def retrieval(self, row: int, step: int, layer: int, rules: list[int], scores: list[float]) -> Retrieval:
        """Return one selection for the trace, of bank rows, best first."""
        ids, texts = self.bank.ids, self.bank.texts
        return Retrieval(row, step, layer, [ids[i] for i in rules], [texts[i] for i in rules], scores)


def one_a_step(trace: Sequence[Retrieval]) -> list[Retrieval]:
    """Return a trace without what the prompt found where the mark that opens the answer found the same again."""
    again = {(search.layer, *search.ids) for search in trace if search.step == 1}
    return [search for search in trace if search.step or (search.layer, *search.ids) not in again]


def real_tokens(like_BT: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return which tokens of a forward are no padding: (B, T) bool."""
    if attention_mask is None:
        return torch.ones_like(like_BT)
    if attention_mask.ndim != 2:
        raise ValueError(
            f"attention_mask must be (rows, tokens), got {tuple(attention_mask.shape)}, which does not say what is a "
            "question's and what padding"
        )
    return attention_mask[:, -like_BT.shape[1] :].bool()


def _where(has_B: Tensor, new: Kept, old: Kept) -> Kept:
    if new[0].shape[1:] != old[0].shape[1:]:  # the bank grew or shrank below K in between
        if bool(has_B.all()):
            return new
        raise ValueError(
            "the bank changed during generation so that rows of one batch would keep different numbers of rules; "
            "keep at least top_k rules in the bank, or generate one row at a time"
        )
    choose = has_B[:, None, None, None]
    return tuple(torch.where(choose, one, other) for one, other in zip(new, old, strict=True))
