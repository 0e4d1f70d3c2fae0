r"""Equations 4 and 5: scores of each step, the stacked step-level attention loss, the language model's loss.

Scores are :math:`a = mean_h(\tilde q_h \cdot \tilde k_h) / \sqrt{D}` with D the head dimension, as in SR-KI. Read over
the full width instead, the paper's dot product is :math:`\sqrt H` times that: a sharper temperature.
"""

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


def lm_loss(logits_NV: Tensor, labels_BT: Tensor, per_instance: bool = False) -> Tensor:
    """Return the next-token loss (first term of equation 5).

    Parameters
    ----------
    logits_NV : Tensor
        Logits that predict the labelled tokens, row after row: ``logits_BTV[:, :-1][labels_BT[:, 1:] != IGNORE]``.
    labels_BT : Tensor
        Unshifted; prompt and padding are `IGNORE`.
    per_instance : bool
        KBLaM's weighting: each instance counts the same whatever its length. Else each token does.
    """
    targets_BT = labels_BT[:, 1:]
    wanted_BT = targets_BT != IGNORE
    # In the logits' dtype: a copy in fp32 took a third of a step on a CPU, and gradients are as exact without it.
    with torch.autocast(logits_NV.device.type, enabled=False):
        loss_N = nn.functional.cross_entropy(logits_NV, targets_BT[wanted_BT], reduction="none")
    loss_N = loss_N.to(torch.promote_types(loss_N.dtype, torch.float32))
    if not per_instance:
        return loss_N.sum() / max(1, len(loss_N))
    row_N = wanted_BT.nonzero()[:, 0]
    count_B = wanted_BT.sum(-1).to(loss_N)
    loss_B = loss_N.new_zeros(len(labels_BT)).index_add(0, row_N, loss_N / count_B[row_N])
    return loss_B.sum() / (count_B > 0).sum().clamp_min(1)


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
