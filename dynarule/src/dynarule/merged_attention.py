"""Rules and text attended apart by the CPU's fused kernel, and joined as one softmax by their log-sum-exps.

Each block costs what it costs alone: the text keeps its causal kernel, no score is ever written to memory, and no key
or value is copied into a joint tensor. The backward pass is exact too: a fused kernel's gradient takes the output and
log-sum-exp that weights are normalised by, so it is handed those of the whole row instead of its block's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def merged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    text_mask: Tensor | None,
    rule_query: Tensor,
    rule_key: Tensor,
    rule_value: Tensor,
    rule_mask: Tensor | None,
    scale: float,
    shift: float = 0.0,
) -> Tensor:
    """Attend to text and rules in one softmax, on a CPU.

    Parameters
    ----------
    query, rule_query : Tensor, (B, H, T, D)
        Queries for text and for rules.
    key, value : Tensor, (B, H, S, D)
        The text, with all heads.
    text_mask : Tensor or None
        Boolean or additive, (B or 1, 1, T, S); None: causal, with T = S.
    rule_key, rule_value : Tensor, (B, H, R, D)
        The rules.
    rule_mask : Tensor or None
        Which rules a token sees, boolean (B, 1, T, R); None: all. A token that sees none reads the text alone.
    scale, shift : float
        Scores are scale q . k, and for rules plus shift.

    Returns
    -------
    Tensor, (B, H, T, D)
        With gradients to queries, keys and values.
    """
    return _Merged.apply(
        query,
        key,
        value,
        rule_query,
        rule_key,
        rule_value,
        _additive(text_mask, query),
        _additive(rule_mask, query),
        scale,
        shift,
    )


def _additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a mask to add, finite: a row that is masked whole keeps a log-sum-exp to compare."""
    if mask is None:
        return None
    lowest = torch.finfo(like.dtype).min
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, lowest)
    return mask.to(like.dtype).clamp_min(lowest)


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rule_query: Tensor,
        rule_key: Tensor,
        rule_value: Tensor,
        text_mask: Tensor | None,
        rule_mask: Tensor | None,
        scale: float,
        shift: float,
    ) -> Tensor:
        text, text_lse = _forward(query, key, value, 0.0, text_mask is None, attn_mask=text_mask, scale=scale)
        rules, rule_lse = _forward(
            rule_query, rule_key, rule_value, 0.0, False, attn_mask=rule_mask, scale=scale
        )
        rule_lse = rule_lse + shift
        share = torch.sigmoid(rule_lse - text_lse)[..., None]
        out = torch.lerp(text, rules, share.to(text.dtype))
        lse = torch.logaddexp(text_lse, rule_lse)
        ctx.save_for_backward(
            query, key, value, rule_query, rule_key, rule_value, text_mask, rule_mask, out, lse
        )
        ctx.scale, ctx.shift = scale, shift
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, rule_query, rule_key, rule_value, text_mask, rule_mask, out, lse = (
            ctx.saved_tensors
        )
        text = _backward(
            grad, query, key, value, out, lse, 0.0, text_mask is None, attn_mask=text_mask, scale=ctx.scale
        )
        # The kernel knows no shift: exp(s + shift - lse) = exp(s - (lse - shift)).
        rules = _backward(
            grad,
            rule_query,
            rule_key,
            rule_value,
            out,
            lse - ctx.shift,
            0.0,
            False,
            attn_mask=rule_mask,
            scale=ctx.scale,
        )
        return (*text, *rules, None, None, None, None)
