"""Which rules a query keeps: one search interface, exact by default.

The score of a rule is (e . d + o) s, with the direction d and the offset o of the query, and s = 1 / sigma of the rule
in that layer (see `dynarule.projection`). Exact search runs over tiles of the bank and keeps a running best K, so
scores of all rules never exist at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..projection import RuleProjection, encoder_scores

if TYPE_CHECKING:
    from .bank import RuleBank

EXACT_UP_TO = 100_000
"""Rules up to which `use_index` stays exact on a CPU. A choice for exactness, not the point where faiss overtakes: at
100,000 rules of width 384, one thread, exact search took 15 ms per query, faiss with 8 bits and 512 clusters 6 ms with
Recall@100 0.998, 7 s to build and 408 bytes more per rule (``rwbench efficiency recall``)."""
SCORE_TILE = 1 << 22  # scores alive at once, 16 MiB


class SearchIndex(Protocol):
    """Finds the best K rules of a bank for each query."""

    def search(
        self, bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows of the bank, (B, K) each, best first; K = min(k, rules)."""
        ...


class ExactIndex:
    """Scores every rule: the default, and the reference for every other index.

    Parameters
    ----------
    tile : int, optional
        Rules scored at once; None: as many as keep the scores within 16 MiB.
    """

    def __init__(self, tile: int | None = None) -> None:
        if tile is not None and tile < 1:
            raise ValueError(f"tile must be a positive number of rules, got {tile}")
        self.tile = tile

    def search(
        self, bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return the best K scores and their rows; see `SearchIndex`."""
        keys_MP = bank.keys_MP
        count, batch = len(keys_MP), len(direction_BP)
        k = min(k, count)
        tile = self.tile or max(min(65_536, SCORE_TILE // max(batch, 1)), 1024, k)
        best_BK = direction_BP.new_empty(batch, 0)
        rows_BK = torch.empty(batch, 0, dtype=torch.long, device=best_BK.device)
        for start in range(0, count, tile):
            stop = min(start + tile, count)
            scores = encoder_scores(direction_BP, offset_B, keys_MP[start:stop], inverse_scale_M[start:stop])
            top, at = scores.topk(min(k, stop - start), dim=-1)
            best_BK, rows_BK = torch.cat([best_BK, top], -1), torch.cat([rows_BK, at + start], -1)
            if start or best_BK.shape[1] > k:
                best_BK, at = best_BK.topk(min(k, best_BK.shape[1]), dim=-1)
                rows_BK = rows_BK.gather(-1, at)
        return best_BK, rows_BK


class LayerScales:
    """1 / sigma of every rule for every layer that asked, kept up to date: only changed rules are computed again."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RuleProjection, tuple[tuple[int, ...], int, Tensor]] = (
            WeakKeyDictionary()
        )

    def __call__(self, bank: RuleBank, projection: RuleProjection) -> Tensor:
        """Return 1 / sigma of the bank's keys, fp32 (M,)."""
        weight, bias = projection.k.weight, projection.k.bias
        weights = (weight._version, bias._version, weight.data_ptr(), bias.data_ptr())
        kept = self._kept.get(projection)
        if kept is None or kept[0] != weights or kept[2].device != bank.keys_MP.device:
            scale_M = (
                projection.inverse_scale(bank.keys_MP) if len(bank) else bank.keys_MP.new_zeros(0).float()
            )
        elif kept[1] == bank.version:
            return kept[2]
        else:
            scale_M = kept[2].new_empty(len(bank))
            same = min(len(bank), len(kept[2]))
            scale_M[:same] = kept[2][:same]
            rows = bank.changed_since(kept[1])
            if len(rows):
                scale_M[rows] = projection.inverse_scale(bank.keys_MP[rows])
        self._kept[projection] = (weights, bank.version, scale_M)
        return scale_M
