"""Rectangular attention (equation 2): rules and text share one softmax.

Rules are keys and values only. They answer queries of their own (``rule_query``), have no RoPE and no place in the KV
cache, so positions, masks and cropping stay those of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

NAME = "dynarule"


@dataclass(frozen=True)
class AttendedRules:
    """What one layer's attention reads besides the text.

    Attributes
    ----------
    query_BHTD : Tensor
        Rule queries of the tokens in this forward.
    key_BHRD, value_BHRD : Tensor
        The rules; R counts the rules of all segments.
    visible_BTR : Tensor or None
        Which rules each token sees; None: all.
    shift : float
        Added to every rule score (KBLaM's log C - log M), 0 for none.
    """

    query_BHTD: Tensor
    key_BHRD: Tensor
    value_BHRD: Tensor
    visible_BTR: Tensor | None = None
    shift: float = 0.0


def register() -> None:
    """Tell transformers the attention function's name; called when a memory is first attached, never at import."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, rule_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


def rule_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    attended_rules: AttendedRules | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend to rules and text; without rules, exactly transformers' SDPA attention.

    The two score blocks come out of one SDPA call: rules answer the second half of a doubled head dimension, text the
    first. Values are padded to the same width, which keeps the fused kernels.

    Returns
    -------
    tuple
        Output (B, T, H, D) and None for the weights.
    """
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

    def base() -> tuple[Tensor, None]:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )

    if attended_rules is None:
        return base()
    rules = attended_rules
    groups = query.shape[1] // key.shape[1]
    key_BHTD, value_BHTD = repeat_kv(key, groups), repeat_kv(value, groups)
    mask, seen_BT = joint_mask(rules, attention_mask, query.shape[2], key.shape[2], query)
    head_dim = query.shape[-1]
    scale = scaling if scaling is not None else head_dim**-0.5
    joint_query = torch.cat([query, rules.query_BHTD], -1)
    joint_key = torch.cat([_pad(rules.key_BHRD, left=head_dim), _pad(key_BHTD, right=head_dim)], 2)
    joint_value = torch.cat([rules.value_BHRD, value_BHTD], 2)
    if query.device.type == "cpu":
        joint_value = _pad(joint_value, right=head_dim)
    out = nn.functional.scaled_dot_product_attention(
        joint_query, joint_key, joint_value, attn_mask=mask, dropout_p=dropout, scale=scale
    )[..., :head_dim]
    out = out.transpose(1, 2).contiguous()
    if seen_BT is not None and not bool(seen_BT.all()):
        # A row that sees no rule must be the base model's, to the last bit.
        out = torch.where(seen_BT[:, :, None, None], out, base()[0])
    return out, None


def joint_mask(
    rules: AttendedRules, attention_mask: Tensor | None, tokens: int, length: int, like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the additive or boolean mask over [rules | text], and which tokens see any rule."""
    text = attention_mask
    if text is None:  # transformers leaves out a purely causal mask
        steps = torch.arange(length, device=like.device)
        text = (steps[None, :] <= steps[length - tokens :, None])[None, None]
    text = text[..., :length]
    batch, count = like.shape[0], rules.key_BHRD.shape[2]
    seen = rules.visible_BTR
    visible = (
        torch.ones(batch, 1, tokens, count, dtype=torch.bool, device=like.device)
        if seen is None
        else seen[:, None]
    )
    if text.dtype == torch.bool:
        text = text.expand(batch, 1, tokens, length)
        if not rules.shift:
            return torch.cat([visible, text], -1), None if seen is None else seen.any(-1)
        lowest = torch.finfo(like.dtype).min
        text = torch.where(text, 0.0, lowest).to(like.dtype)
    else:
        text = text.expand(batch, 1, tokens, length)
    lowest = torch.finfo(like.dtype).min
    added = torch.where(visible, rules.shift, lowest).to(like.dtype)
    return torch.cat([added, text], -1), None if seen is None else seen.any(-1)


def _pad(tensor: Tensor, left: int = 0, right: int = 0) -> Tensor:
    return nn.functional.pad(tensor, (left, right))
