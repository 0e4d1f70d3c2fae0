"""1 / sigma of every rule in every layer: what a score in encoder space is divided by, kept while a bank changes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..projection import RuleProjection
    from .bank import RuleBank

TILE = 65_536


class InverseScales:
    """The scales of one bank, by layer, each with the weights and the version of the bank that they are of."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RuleProjection, tuple[tuple[int, ...], int, Tensor]]
        self._kept = WeakKeyDictionary()

    def of(self, bank: RuleBank, projection: RuleProjection) -> Tensor:
        """Return those of a layer, fp32 (M,); see `RuleBank.inverse_scale`."""
        weight, bias = projection.k.weight, projection.k.bias
        weights = (weight._version, bias._version, weight.data_ptr(), bias.data_ptr())
        kept_weights, version, scale_M = self._kept.get(projection, ((), -1, torch.empty(0)))
        if kept_weights != weights or scale_M.device != bank.device:
            tiles = (projection.inverse_scale(part) for _, part in bank.keys.different.tiles(TILE))
            scale_U = torch.cat([torch.empty(0, device=bank.device), *tiles])
            scale_M = scale_U[bank.keys.at(torch.arange(len(bank), device=bank.device))]
        elif version != bank.version:
            old_M, rows = scale_M, bank.changed_since(version)
            scale_M = old_M.new_empty(len(bank))
            same = min(len(bank), len(old_M))
            scale_M[:same] = old_M[:same]
            if len(rows):
                scale_M[rows] = projection.inverse_scale(bank.keys_at(rows))
        self._kept[projection] = (weights, bank.version, scale_M)
        return scale_M
