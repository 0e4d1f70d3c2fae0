"""Which rules a query keeps: exact search over tiles of a bank.

The score of a rule is (e . d + o) s, with the direction d and the offset o of the query, and s = 1 / sigma of the rule
in that layer (see `dynarule.projection`). A running best K is kept, so scores of all rules never exist at once. Rules
that share a key share the dot product, which is what costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..projection import encoder_scores

if TYPE_CHECKING:
    from .bank import RuleBank

SCORE_TILE = 1 << 22  # scores alive at once, 16 MiB


def best_rules(
    bank: RuleBank,
    direction_BP: Tensor,
    offset_B: Tensor,
    inverse_scale_M: Tensor,
    k: int,
    allowed_BM: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return scores and rows of the bank, (B, K) each, best first, of the rules that each query may find; None: all."""
    k = min(k, len(bank))
    best_BK = direction_BP.new_empty(len(direction_BP), 0)
    rows_BK = torch.empty(len(direction_BP), 0, dtype=torch.long, device=best_BK.device)
    for start, scores in rule_scores(bank, direction_BP, offset_B, inverse_scale_M, k):
        if allowed_BM is not None:
            allowed_BN = allowed_BM[:, start : start + scores.shape[1]].to(scores.device)
            scores = scores.masked_fill(~allowed_BN, -torch.inf)
        top, at = scores.topk(min(k, scores.shape[-1]), dim=-1)
        best_BK, rows_BK = torch.cat([best_BK, top], -1), torch.cat([rows_BK, at + start], -1)
        if start:
            best_BK, at = best_BK.topk(min(k, best_BK.shape[1]), dim=-1)
            rows_BK = rows_BK.gather(-1, at)
    return best_BK, rows_BK


def rule_scores(
    bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, least: int = 0
) -> Iterator[tuple[int, Tensor]]:
    """Yield the first rule and the scores (B, N) of parts of a bank, each of at least so many rules but the last."""
    tile = max(min(65_536, SCORE_TILE // max(len(direction_BP), 1)), 1024, least)
    keys_UP, shared = bank.keys.different, bank.keys.shared
    if shared:
        one = inverse_scale_M.new_ones(())
        parts = [encoder_scores(direction_BP, offset_B, part, one) for part in keys_UP.split(tile)]
        dots_BU = torch.cat(parts, -1)
    for start in range(0, len(bank), tile):
        scale_N = inverse_scale_M[start : start + tile]
        if shared:
            rules_N = torch.arange(start, start + len(scale_N), device=keys_UP.device)
            yield start, dots_BU[:, bank.keys.at(rules_N)] * scale_N
        else:
            yield start, encoder_scores(direction_BP, offset_B, keys_UP[start : start + tile], scale_N)


def version_of(weight: Tensor) -> int:
    """Return what changes with a weight; those that were made under ``inference_mode`` stay as they are."""
    return 0 if weight.is_inference() else weight._version
