"""Rectangular attention (equation 2 of the paper): rules and text share one softmax.

Rules are keys and values only. They answer queries of their own (`RuleProjection.query`), have no RoPE and no place in
the KV cache, so positions, masks and cropping stay those of the text. `rule_attention` is the equation as it stands,
`dynarule.kernels` computes the same faster for some shapes, `dynarule.attention_interface` hands both to transformers.

Shapes, here and there: B batch, H heads, G key-value heads of the text, T tokens, S text read (cache included), R
rules of all segments, D head dim.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["AttendedRules", "rule_attention"]


@dataclass(frozen=True)
class AttendedRules:
    """What one layer's attention reads besides the text: rules, or their tokens (keys with RoPE).

    B is 1 where all rows share them. H may be fewer, each of which several heads of the query share, as in the text.
    """

    # of the tokens in this forward; None: the text's own ask, of rules' tokens that stand before it
    query_BHTD: Any
    key_BHRD: Tensor
    value_BHRD: Tensor
    visible_BTR: Tensor | None = None  # which rules each token sees; None: all
    # added to rule scores, such as KBLaM's log C - log M; (B, 1, 1, R): one a rule
    shift: float | Tensor = 0.0

    def each_row(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return keys and values with a row for each row of the batch."""
        return self.key_BHRD.expand(rows, -1, -1, -1), self.value_BHRD.expand(rows, -1, -1, -1)


def rule_attention(
    query_BHTD: Tensor,
    key_BGSD: Tensor,
    value_BGSD: Tensor,
    text_mask: Tensor | None,
    rules: AttendedRules,
    scale: float,
) -> Tensor:
    """Attend to rules and text in one softmax, softmax([s (q~ k~^T) + shift, s (q k^T)]) [v~; v]: (B, H, T, D).

    ``text_mask`` is boolean or additive, (B or 1, 1, T, S); None: causal, the last token seeing all of S. einsum reads
    rules that all rows share once, for the queries of all rows.
    """
    groups, of_rules = (key_BGSD.shape[1], -1), (rules.key_BHRD.shape[1], -1)  # H as G, H / G
    rule_query = rules.query_BHTD.unflatten(1, of_rules)
    rule_scores = torch.einsum("bgqtd,bgrd->bgqtr", rule_query, rules.key_BHRD) * scale
    text_scores = torch.einsum("bgqtd,bgsd->bgqts", query_BHTD.unflatten(1, groups), key_BGSD) * scale
    scores = torch.cat(
        [
            rule_scores.flatten(1, 2) + rule_bias(rules, query_BHTD.dtype),  # (B, H, T, R)
            text_scores.flatten(1, 2) + text_bias(text_mask, query_BHTD, key_BGSD.shape[2]),  # (B, H, T, S)
        ],
        -1,
    )
    rule_weights, text_weights = scores.softmax(-1).split([rule_scores.shape[-1], text_scores.shape[-1]], -1)
    from_text = torch.einsum("bgqts,bgsd->bgqtd", text_weights.unflatten(1, groups), value_BGSD).flatten(1, 2)
    rule_weights = rule_weights.unflatten(1, of_rules)
    return from_text + torch.einsum("bgqtr,bgrd->bgqtd", rule_weights, rules.value_BHRD).flatten(1, 2)


def rule_bias(rules: AttendedRules, dtype: torch.dtype) -> Tensor | float:
    """Return what is added to scores of rules: (B, 1, T or 1, R), or one number for all of them."""
    if rules.visible_BTR is None:
        return rules.shift
    return additive(rules.visible_BTR[:, None], dtype) + rules.shift


def text_bias(mask: Tensor | None, query_BHTD: Tensor, length: int) -> Tensor | float:
    """Return what is added to scores of text: (B or 1, 1, T, S), or 0 where the only token sees all of S."""
    tokens = query_BHTD.shape[2]
    if mask is None:
        if tokens == 1:
            return 0.0
        mask = torch.ones(1, 1, tokens, length, dtype=torch.bool, device=query_BHTD.device).tril(
            length - tokens
        )
    return additive(mask[..., :length], query_BHTD.dtype)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to scores, finite: a row that is masked whole keeps a log-sum-exp to compare."""
    lowest = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, lowest)
    return mask.to(dtype).clamp_min(lowest)
