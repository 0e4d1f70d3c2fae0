"""A rule memory at work: which rules each row of a batch sees in each layer, and when they change.

Prefill: every layer scores all rules with the mean query of the prompt and keeps the best K. Decoding sees those K,
however many rules there are. A ``<search>`` token re-scores all rules at the confidence layer with its own query,
within the same forward, and its row attends to the new K from that token on. A forward over a whole sequence does the
same segment by segment, so it equals generation token by token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..attention import AttendedRules
from ..bank.bank import RuleBank
from ..projection import RuleAdapter


@dataclass(frozen=True)
class Retrieval:
    """One selection of rules, for the trace.

    Attributes
    ----------
    row, step, layer : int
        Row of the batch, reasoning step (0 at prefill), 0-based layer.
    ids, texts : list of str
        The kept rules, best first.
    scores : list of float
        Their scores: mean over heads of q~ . k~ / sqrt(D).
    """

    row: int
    step: int
    layer: int
    ids: list[str]
    texts: list[str] = field(repr=False)
    scores: list[float] = field(repr=False)


@dataclass
class _Kept:
    """The rules one layer keeps: projected keys and values, (B, H, K, D); B is 1 where all rows keep all rules."""

    key: Tensor
    value: Tensor


class RuleMemory:
    """Rules for one batch at a time.

    Parameters
    ----------
    adapter : RuleAdapter
        The trained projections.
    bank : RuleBank
        The rules; may change between and during generations (a later selection sees the change).
    search_token_id : int or None
        Id of ``<search>``; None never searches again.
    """

    def __init__(self, adapter: RuleAdapter, bank: RuleBank, search_token_id: int | None = None) -> None:
        if bank.encoder_dim != adapter.config.encoder_dim:
            raise ValueError(
                f"the bank's embeddings have width {bank.encoder_dim}, the adapter reads {adapter.config.encoder_dim}; "
                "build the bank with the encoder the adapter was trained with"
            )
        if adapter.encoder and bank.encoder and adapter.encoder != bank.encoder:
            raise ValueError(
                f"the bank was built with encoder {bank.encoder!r}, the adapter was trained with {adapter.encoder!r}; "
                "build the bank with the adapter's encoder"
            )
        self.adapter, self.bank, self.search_token_id = adapter, bank, search_token_id
        self.trace: list[Retrieval] = []
        self.question_mask_BT: Tensor | None = None
        self._updated = set(adapter.config.updated_layers(adapter.num_layers))
        self._kept: dict[int, _Kept] = {}
        self._chosen: dict[
            int, Tensor
        ] = {}  # what the confidence layer kept at each <search> of this forward
        self._search_BT: Tensor | None = None
        self._question_BT: Tensor | None = None
        self._searches = 0
        self._steps_B = torch.zeros(0, dtype=torch.long)
        self._first_step_B = self._steps_B

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, before its layers run."""
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
            real = (
                torch.ones_like(search)
                if attention_mask is None or attention_mask.ndim != 2
                else attention_mask[:, -input_ids.shape[1] :].bool()
            )
            question = real if self.question_mask_BT is None else self.question_mask_BT.to(real) & real
            if not bool(question.any(-1).all()):
                row = int((~question.any(-1)).nonzero()[0])
                raise ValueError(
                    f"row {row} of the batch has no question token, so nothing says which rules it needs"
                )
            self._question_BT = question
            search = search & ~question  # a <search> inside the question is text
            self.trace = []
            self._kept = {}
            self._steps_B = torch.zeros(len(input_ids), dtype=torch.long, device=input_ids.device)
        self._search_BT = search
        self._searches = int(search.sum(-1).max()) if search.numel() else 0
        if self._searches:
            self._first_step_B = self._steps_B
            self._steps_B = self._steps_B + search.sum(-1)

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        """Return what a layer's attention reads besides the text; None if it holds no rules."""
        if layer not in self.adapter:
            return None
        if layer not in self._kept and (not len(self.bank) or self._question_BT is None):
            return None  # no rules at prefill: rules added since are seen from the next question on
        projection = self.adapter[layer]
        query_BHTD = projection.query(hidden_BTC, getattr(block, "q_norm", None))
        if self._question_BT is not None:
            weight = self._question_BT.float()[:, None, :, None]
            mean_BHD = (query_BHTD.float() * weight).sum(2) / weight.sum(2)
            self._kept[layer] = self._select(layer, mean_BHD, None)
        kept = self._kept[layer]
        visible = None
        if self._searches and layer in self._updated and len(self.bank):
            kept, visible = self._search(layer, query_BHTD, kept)
        shift = 0.0
        if self.adapter.config.length_shift is not None:
            shift = math.log(self.adapter.config.length_shift) - math.log(self._kept[layer].key.shape[2])
        return AttendedRules(query_BHTD, kept.key, kept.value, visible, shift)

    def _search(self, layer: int, query_BHTD: Tensor, kept: _Kept) -> tuple[_Kept, Tensor | None]:
        """Select again at every ``<search>`` of this forward; each token sees the set of the last one before it."""
        search = self._search_BT
        assert search is not None
        segment_BT = search.cumsum(-1)
        rows = torch.arange(len(search), device=search.device)
        sets, latest = [kept], kept
        for number in range(1, self._searches + 1):
            here = search & (segment_BT == number)
            has_B = here.any(-1)
            position_B = here.int().argmax(-1)
            new = self._select(
                layer, query_BHTD[rows, :, position_B], has_B, number, self._first_step_B + number
            )
            sets.append(new)
            latest = _where(has_B, new, latest)
        self._kept[layer] = latest
        if search.shape[1] == 1:
            return latest, None
        sizes = torch.tensor([s.key.shape[2] for s in sets], device=search.device)
        owner = torch.repeat_interleave(torch.arange(len(sets), device=search.device), sizes)
        visible_BTR = segment_BT[:, :, None] == owner
        every = len(search)
        joined = _Kept(
            torch.cat([s.key.expand(every, -1, -1, -1) for s in sets], 2),
            torch.cat([s.value.expand(every, -1, -1, -1) for s in sets], 2),
        )
        return joined, visible_BTR

    def _select(
        self,
        layer: int,
        query_BHD: Tensor,
        wanted_B: Tensor | None,
        number: int = 0,
        step_B: Tensor | None = None,
    ) -> _Kept:
        """Keep each row's best K rules of the whole bank, and project only those; without a K, all of them once."""
        projection, config = self.adapter[layer], self.adapter.config
        keys_MP, values_MP = self.bank.keys_MP, self.bank.values_MP
        traced = layer in self._updated or layer == config.confidence_layer
        if config.shares(layer):
            rows_BK = self._chosen[number]
        elif traced or config.top_k is not None:
            with torch.no_grad():
                scores_BK, rows_BK = self.bank.search(projection, query_BHD, config.top_k)
            if layer == config.confidence_layer:
                self._chosen[number] = rows_BK
            if traced:
                self._record(layer, rows_BK, scores_BK, wanted_B, step_B)
        keys, values = (
            (keys_MP[None], values_MP[None])
            if config.top_k is None
            else (keys_MP[rows_BK], values_MP[rows_BK])
        )
        like = projection.k.weight
        key = projection.heads(projection.keys(keys.to(like.dtype)))
        value = projection.heads(projection.values(values.to(like.dtype)))
        # Contiguous: every token from now on reads them.
        return _Kept(key.contiguous(), value.contiguous())

    def _record(
        self, layer: int, rows_BK: Tensor, scores_BK: Tensor, wanted_B: Tensor | None, step_B: Tensor | None
    ) -> None:
        rows, scores = rows_BK.tolist(), scores_BK.tolist()
        wanted = [True] * len(rows) if wanted_B is None else wanted_B.tolist()
        steps = [0] * len(rows) if step_B is None else step_B.tolist()
        for row, keep in enumerate(wanted):
            if keep:
                self.trace.append(
                    Retrieval(
                        row,
                        steps[row],
                        layer,
                        [self.bank.ids[i] for i in rows[row]],
                        [self.bank.texts[i] for i in rows[row]],
                        scores[row],
                    )
                )


def _where(has_B: Tensor, new: _Kept, old: _Kept) -> _Kept:
    if new.key.shape[1:] != old.key.shape[1:]:  # the bank grew or shrank below K in between
        if bool(has_B.all()):
            return new
        raise ValueError(
            "the bank changed during generation so that rows of one batch would keep different numbers of rules; "
            "keep at least top_k rules in the bank, or generate one row at a time"
        )
    choose = has_B[:, None, None, None]
    return _Kept(torch.where(choose, new.key, old.key), torch.where(choose, new.value, old.value))
