"""Equation 2, faster: the same numbers as `dynarule.attention.rule_attention`, for shapes where it was measured."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv

from .attention import AttendedRules, additive, rule_attention, rule_bias, text_bias

UNFUSED_MAX_SCORES = 1 << 17
"""Tokens times entries attended, per head, up to which two plain products beat a fused kernel (on a CPU)."""
MERGE_MIN_TOKENS = 32
"""Tokens from which, on a CPU, two fused blocks beat plain products (with 100 rules; twice at 245 tokens)."""

# Two softmaxes are one only with their log-sum-exps, and SDPA keeps those to itself. The public operators that return
# them do not serve here: `flex_attention` writes all scores to memory unless compiled, `varlen_attn` needs a GPU.
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    text_mask: Tensor | None,
    rules: AttendedRules,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return `dynarule.attention.rule_attention` of the same arguments by the fastest way, (B, H, T, D)."""
    tokens, entries = query.shape[2], key.shape[2] + rules.key_BHRD.shape[2]
    # One joint tensor of rules and text would copy rules that all rows share.
    shared = len(rules.key_BHRD) < len(query)
    long = tokens >= MERGE_MIN_TOKENS or (shared and tokens > 1)
    small, on_cpu = tokens * entries <= UNFUSED_MAX_SCORES, query.device.type == "cpu"
    # On a CPU the backward pass of a fused kernel takes three times that of plain products, in halves.
    halves = on_cpu and small and query.element_size() == 2 and torch.is_grad_enabled()
    if on_cpu and long and not dropout and not halves:
        return merged_attention(query, key, value, text_mask, rules, scale)
    # At one token a fused kernel would copy all keys and values: in bf16 on a CPU 7 to 45 times the time.
    few = tokens == 1 or halves or (query.dtype == torch.float32 and small)
    if few and not dropout:
        plain = rule_attention if shared else plain_attention
        return plain(query, key, value, text_mask, rules, scale)
    return fused_attention(query, key, value, text_mask, rules, scale, dropout)


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, text_mask: Tensor | None, rules: AttendedRules, scale: float
) -> Tensor:
    """Write the equation with bmm, for rows that have rules of their own.

    At one token, the bookkeeping of matmul and einsum costs as much as the products.
    """
    batch, heads, tokens, head_dim = query.shape
    rows, groups, count = batch * heads, batch * key.shape[1], rules.key_BHRD.shape[2]
    of_rules = batch * rules.key_BHRD.shape[1]

    def flat(tensor: Tensor, first: int) -> Tensor:
        return tensor.reshape(first, -1, tensor.shape[-1])

    text_scores = torch.bmm(flat(query, groups), flat(key, groups).transpose(1, 2)).view(rows, tokens, -1)
    rule_scores = torch.bmm(flat(rules.query_BHTD, of_rules), flat(rules.key_BHRD, of_rules).transpose(1, 2))
    scores = torch.cat([rule_scores.view(rows, tokens, -1), text_scores], -1) * scale  # (B H, T, R + S)
    bias = _joint_bias(query, key, text_mask, rules)
    if bias is not None:
        scores = flat(scores.view(batch, heads, tokens, -1) + bias, rows)
    weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32)).to(value)
    from_text = torch.bmm(flat(weights[..., count:], groups), flat(value, groups))
    out = torch.baddbmm(
        flat(from_text, of_rules), flat(weights[..., :count], of_rules), flat(rules.value_BHRD, of_rules)
    )
    return out.view(batch, heads, tokens, head_dim)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    text_mask: Tensor | None,
    rules: AttendedRules,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Attend with one SDPA call: rules answer the second half of a doubled head dimension, text the first."""
    batch, heads, _, head_dim = query.shape
    rule_key, rule_value = (repeat_kv(side, heads // side.shape[1]) for side in rules.each_row(batch))
    right, left = (0, head_dim), (head_dim, 0)  # where zeros go in the last dimension
    joint_query = torch.cat([query, rules.query_BHTD], -1)  # (B, H, T, 2 D)
    text_key, text_value = (repeat_kv(side, heads // side.shape[1]) for side in (key, value))
    joint_key = torch.cat([pad(rule_key, left), pad(text_key, right)], 2)  # (B, H, R + S, 2 D)
    joint_value = torch.cat([rule_value, text_value], 2)  # (B, H, R + S, D)
    if query.device.type == "cpu":  # whose kernel needs values as wide as keys
        joint_value = pad(joint_value, right)
    bias = _joint_bias(query, key, text_mask, rules)
    return scaled_dot_product_attention(
        joint_query, joint_key, joint_value, attn_mask=bias, dropout_p=dropout, scale=scale
    )[..., :head_dim]


def _joint_bias(query: Tensor, key: Tensor, text_mask: Tensor | None, rules: AttendedRules) -> Tensor | None:
    """Return what is added to all scores, (B, 1, T, R + S); None: nothing."""
    parts = [
        (rule_bias(rules, query.dtype), rules.key_BHRD.shape[2]),
        (text_bias(text_mask, query, key.shape[2]), key.shape[2]),
    ]
    if not any(isinstance(bias, Tensor) or bias for bias, _ in parts):
        return None
    zero = query.new_zeros(len(query), 1, query.shape[2], 1)
    return torch.cat([(zero + bias).expand(-1, -1, -1, length) for bias, length in parts], -1)


def merged_attention(
    query: Tensor, key: Tensor, value: Tensor, text_mask: Tensor | None, rules: AttendedRules, scale: float
) -> Tensor:
    """Attend to text and rules apart, on a CPU, and merge the two by their log-sum-exps; with gradients.

    Each block costs what it costs alone: the text keeps its causal kernel, no score is ever written to memory, and no
    key or value is copied into a joint tensor.
    """
    batch, heads, tokens, _ = query.shape
    causal = text_mask is None and tokens == key.shape[2]
    text = 0.0 if causal else text_bias(text_mask, query, key.shape[2])
    seen = 0.0 if rules.visible_BTR is None else additive(rules.visible_BTR[:, None], query.dtype)
    shift = rules.shift
    if isinstance(shift, Tensor):
        seen, shift = (seen + shift).expand(batch, 1, tokens, -1), 0.0
    return _Merged.apply(
        query,
        repeat_kv(key, heads // key.shape[1]),
        repeat_kv(value, heads // value.shape[1]),
        rules.query_BHTD,
        *(repeat_kv(side, heads // side.shape[1]) for side in rules.each_row(batch)),
        text if isinstance(text, Tensor) else None,
        seen if isinstance(seen, Tensor) else None,
        causal,
        scale,
        shift,
    )


class _Merged(torch.autograd.Function):
    """Blocks 1 (text) and 2 (rules) with outputs o and log-sum-exps l: o = lerp(o1, o2, sigmoid(l2 - l1)).

    The backward pass is exact: a flash kernel's gradient takes the output and log-sum-exp that weights are normalised
    by, so each block is handed those of both together instead of its own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rule_query: Tensor,
        rule_key: Tensor,
        rule_value: Tensor,
        text_bias: Tensor | None,
        seen_bias: Tensor | None,
        causal: bool,
        scale: float,
        shift: float,
    ) -> Tensor:
        text, text_lse = _flash(query, key, value, 0.0, causal, attn_mask=text_bias, scale=scale)
        rules, rule_lse = _flash(
            rule_query, rule_key, rule_value, 0.0, False, attn_mask=seen_bias, scale=scale
        )
        rule_lse = rule_lse + shift  # (B, H, T)
        share = torch.sigmoid(rule_lse - text_lse)[..., None]
        out = torch.lerp(text, rules, share.to(text.dtype))
        lse = torch.logaddexp(text_lse, rule_lse)
        ctx.save_for_backward(
            query, key, value, text_bias, rule_query, rule_key, rule_value, seen_bias, out, lse
        )
        ctx.settings = causal, scale, shift
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dtype, wide = grad.dtype, torch.promote_types(grad.dtype, torch.float32)
        # The kernel takes four times as long for the gradient of halves as for that of floats.
        saved = (None if part is None else part.to(wide) for part in ctx.saved_tensors)
        *text, text_bias, rule_query, rule_key, rule_value, seen_bias, out, lse = saved
        causal, scale, shift = ctx.settings
        grad = grad.to(wide)
        of_text = _flash_backward(grad, *text, out, lse, 0.0, causal, attn_mask=text_bias, scale=scale)
        # The kernel knows no shift: exp(s + shift - lse) = exp(s - (lse - shift)).
        rules = rule_query, rule_key, rule_value
        of_rules = _flash_backward(
            grad, *rules, out, lse - shift, 0.0, False, attn_mask=seen_bias, scale=scale
        )
        return (*(part.to(dtype) for part in (*of_text, *of_rules)), None, None, None, None, None)
