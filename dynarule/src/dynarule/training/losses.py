r"""Equations 4 and 5: scores of each step, the stacked step-level attention loss, the language model's loss.

Scores are :math:`a = mean_h(\tilde q_h \cdot \tilde k_h) / \sqrt{D}` with D the head dimension, as in SR-KI. Reading
the paper's dot product over the full width instead (``full_dot``) multiplies them by :math:`\sqrt H`: the same
ranking, a sharper temperature.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

IGNORE = -100


def stacked_step_loss(scores_BSK: Tensor, positives_BSK: Tensor, temperature: float = 0.05) -> Tensor:
    """Return the Stacked Step-Level Attention Loss (second term of equation 5).

    For every positive a cross-entropy against all kept rules but the other positives of its step; gold rules of other
    steps are negatives. Mean over the positives of an instance, then over the instances that have any. With one step,
    that of the gold rules of the whole question, it is SR-KI's loss (whose code averages over padding too).
    """
    logits_BSK = scores_BSK / temperature
    lowest = torch.finfo(logits_BSK.dtype).min
    # Finite, so that a step in which every candidate is positive has a gradient.
    negatives_BS1 = logits_BSK.masked_fill(positives_BSK, lowest).logsumexp(-1, keepdim=True)
    loss_BSK = torch.logaddexp(logits_BSK, negatives_BS1) - logits_BSK
    count_B = positives_BSK.flatten(1).sum(-1)
    loss_B = torch.where(positives_BSK, loss_BSK, 0.0).flatten(1).sum(-1) / count_B.clamp_min(1)
    return loss_B.sum() / (count_B > 0).sum().clamp_min(1)


def lm_loss(
    logits_NV: Tensor, labels_BT: Tensor, per_instance: bool = False, weight_BT: Tensor | None = None
) -> Tensor:
    """Return the next-token loss (first term of equation 5).

    Parameters
    ----------
    logits_NV : Tensor
        Logits that predict the labelled tokens, row after row: ``logits_BTV[:, :-1][labels_BT[:, 1:] != IGNORE]``.
    labels_BT : Tensor
        Unshifted; prompt and padding are `IGNORE`.
    per_instance : bool
        KBLaM's weighting: each instance counts the same whatever its length. Else each token does.
    weight_BT : Tensor or None
        Weights of the means, at the token that predicts.
    """
    targets_BT = labels_BT[:, 1:]
    wanted_BT = targets_BT != IGNORE
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    loss_N = nn.functional.cross_entropy(logits_NV.to(dtype), targets_BT[wanted_BT], reduction="none")
    weight_N = torch.ones_like(loss_N) if weight_BT is None else weight_BT[:, :-1][wanted_BT].to(dtype)
    if not per_instance:
        return (loss_N * weight_N).sum() / weight_N.sum().clamp_min(torch.finfo(dtype).tiny)
    row_N = wanted_BT.nonzero()[:, 0]
    none_B = loss_N.new_zeros(len(labels_BT))
    weight_B = none_B.index_add(0, row_N, weight_N)
    loss_B = none_B.index_add(0, row_N, loss_N * weight_N / weight_B[row_N])
    return loss_B.sum() / (weight_B > 0).sum().clamp_min(1)


def new_words(input_ids_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the tokens before an answer's token that is nowhere before it: (B, T) bool.

    Such a word comes from a rule, or from the form of answers.
    """
    next_B1T = input_ids_BT[:, None, 1:]
    before_TT = torch.ones(input_ids_BT.shape[1], input_ids_BT.shape[1] - 1, dtype=torch.bool).triu()
    seen_BT = ((input_ids_BT[:, :, None] == next_B1T) & before_TT.to(input_ids_BT.device)).any(1)
    return nn.functional.pad((labels_BT[:, 1:] != IGNORE) & ~seen_BT, (0, 1))


@torch.no_grad()
def step_recall(scores_BSK: Tensor, positives_BSK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over steps of Recall@1, with as many rules as a step has gold, and the number of steps.

    A step without positives does not count.
    """
    count_BS = positives_BSK.sum(-1)
    ranked_BSK = positives_BSK.gather(-1, scores_BSK.argsort(-1, descending=True))
    place_K = torch.arange(ranked_BSK.shape[-1], device=ranked_BSK.device)
    hits_BS = (ranked_BSK & (place_K < count_BS[..., None])).sum(-1)
    return (hits_BS / count_BS.clamp_min(1)).sum(), (count_BS > 0).sum()
