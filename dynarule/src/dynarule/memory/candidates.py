"""Equation 3: which of a pool's M rules a layer keeps for each row of a training batch.

A rule's relevance is its score averaged over the tokens of the whole sequence, so one set of K rules serves all
steps. At the confidence layer the gold rules of every step are in it (KeepDim). Selection has no gradient; scores of
what is kept do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..projection import RuleProjection, score_keys


@torch.no_grad()
def pool_scores(projection: RuleProjection, query_BHD: Tensor, keys_MP: Tensor) -> Tensor:
    """Score a pool's M rules for each row, on the cheaper of two exact ways.

    With fewer rules than encoder dimensions the rules are projected; else the query moves to encoder space, which costs
    P x P for the scale of a rule's key instead of P x F.
    """
    count, width = keys_MP.shape
    if count > width:
        return projection.score(query_BHD, keys_MP, projection.inverse_scale(keys_MP))
    key_MF = projection.keys(keys_MP.to(projection.k.weight.dtype))
    return score_keys(query_BHD[:, None], key_MF[None])[:, 0]


@torch.no_grad()
def keep_top(scores_BM: Tensor, top_k: int | None, gold_BSG: Tensor | None = None) -> Tensor:
    """Return the K pool rows each batch row keeps, best first: (B, K).

    With gold rules this is KeepDim: they are kept whatever their scores, and as many of the lowest-scored other rules
    are dropped. A rule that is gold in several steps takes one place.

    Parameters
    ----------
    scores_BM : Tensor
        Relevance of the pool's rules.
    top_k : int or None
        K; None, or more than M, keeps all.
    gold_BSG : Tensor or None
        Pool rows of each step's gold rules, -1 where a row has fewer steps or a step fewer rules.

    Raises
    ------
    ValueError
        If a row has more gold rules than K, or a gold index is outside the pool.
    """
    count = scores_BM.shape[-1]
    kept = count if top_k is None else min(top_k, count)
    if gold_BSG is None or not gold_BSG.numel():
        return scores_BM.topk(kept, dim=-1).indices
    gold_BM = gold_mask(gold_BSG, count)
    most = int(gold_BM.sum(-1).max())
    if most > kept:
        raise ValueError(
            f"a question has {most} gold rules but only {kept} rules are kept per layer; raise top_k to {most} or more"
        )
    ranked_BM = torch.where(gold_BM, float("inf"), scores_BM.float())
    rows_BK = ranked_BM.topk(kept, dim=-1).indices
    order_BK = scores_BM.gather(-1, rows_BK).argsort(dim=-1, descending=True, stable=True)
    return rows_BK.gather(-1, order_BK)


def gold_mask(gold_BSG: Tensor, count: int) -> Tensor:
    """Return which of ``count`` pool rules are gold in any step: (B, M) bool."""
    if int(gold_BSG.max()) >= count or int(gold_BSG.min()) < -1:
        raise ValueError(
            f"gold rules must be rows of the pool, 0 to {count - 1} (-1 for padding), "
            f"got {int(gold_BSG.min())} to {int(gold_BSG.max())}"
        )
    flat = gold_BSG.flatten(1)
    # One more column takes the padding.
    marked = torch.zeros(len(flat), count + 1, dtype=torch.bool, device=flat.device)
    return marked.scatter_(1, flat.where(flat >= 0, count), True)[:, :count]


def positives(rows_BK: Tensor, gold_BSG: Tensor) -> Tensor:
    """Return which kept rules are gold at each step: (B, S, K) bool."""
    return (rows_BK[:, None, :, None] == gold_BSG[:, :, None, :]).any(-1)
