"""Rectangular attention (equation 2): rules and text share one softmax.

Rules are keys and values only. They answer queries of their own (``rule_query``), have no RoPE and no place in the KV
cache, so positions, masks and cropping stay those of the text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .merged_attention import merged_attention

__all__ = ["AttendedRules", "rule_attention"]

NAMES = {"sdpa": "dynarule", "eager": "dynarule_eager"}
"""What transformers calls this attention, by the implementation it stands in for."""
FEW_SCORES = 1 << 17
"""Tokens times entries attended, per head, up to which plain products beat the fused kernel (measured on a CPU)."""
MERGE_FROM = 32
"""Tokens from which, on a CPU, two fused blocks beat plain products (measured with 100 rules; twice at 245 tokens)."""


@dataclass(frozen=True)
class AttendedRules:
    """What one layer's attention reads besides the text.

    Attributes
    ----------
    query_BHTD : Tensor
        Rule queries of the tokens in this forward.
    key_BHRD, value_BHRD : Tensor
        The rules; R counts the rules of all segments. B is 1 where all rows share them.
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

    def each_row(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return keys and values with a row for each row of the batch."""
        return self.key_BHRD.expand(rows, -1, -1, -1), self.value_BHRD.expand(rows, -1, -1, -1)


def register() -> None:
    """Tell transformers the attention functions' names; called when a memory is first attached, never at import."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for before, name in NAMES.items():
        base = _sdpa if before == "sdpa" else _eager
        ALL_ATTENTION_FUNCTIONS.register(name, partial(rule_attention, base_attention=base))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS[before])


def is_attached(model: nn.Module) -> bool:
    """Say whether a rule memory is attached to a model."""
    config: Any = model.config
    return config._attn_implementation in NAMES.values()


def _sdpa(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward(module, *args, **kwargs)


def _eager(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Call the eager attention of the model's own family; the class may be a wrapper's, so its bases are asked too."""
    homes = (sys.modules[kind.__module__] for kind in type(module).__mro__)
    own = next(home.eager_attention_forward for home in homes if hasattr(home, "eager_attention_forward"))
    return own(module, *args, **kwargs)


def rule_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    attended_rules: AttendedRules | None = None,
    base_attention: Callable[..., tuple[Tensor, Tensor | None]] = _sdpa,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend to rules and text; without rules, exactly the attention the model was loaded with.

    Prompts and training on a CPU: two fused blocks, see `merged_attention`. Decoding in fp32: plain products, which
    copy no keys and values (20 times faster at one token on a CPU). Else the two score blocks come out of one SDPA
    call: rules answer the second half of a doubled head dimension, text the first, and values are padded to the same
    width, which keeps the fused kernels.

    Returns
    -------
    tuple
        Output (B, T, H, D), and the weights where the base's attention returns them and there are no rules, or None.
    """
    from transformers.integrations.sdpa_attention import repeat_kv

    def base() -> tuple[Tensor, Tensor | None]:
        return base_attention(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )

    if attended_rules is None:
        return base()
    rules = attended_rules
    tokens, length, head_dim = query.shape[2], key.shape[2], query.shape[-1]
    scale = scaling if scaling is not None else head_dim**-0.5
    groups = query.shape[1] // key.shape[1]
    # Without a mask, transformers means causal from the first token; a part of a sequence is masked below.
    whole = attention_mask is not None or tokens == length
    seen_BT = None if rules.visible_BTR is None else rules.visible_BTR.any(-1)
    shared = len(rules.key_BHRD) < len(query)
    # A joint tensor would copy the rules for each row.
    merge = tokens >= MERGE_FROM or (shared and tokens > 1)
    if query.device.type == "cpu" and merge and whole and not dropout:
        text_mask = None if attention_mask is None else attention_mask[..., :length]
        rule_mask = None if rules.visible_BTR is None else rules.visible_BTR[:, None]
        text = (query, repeat_kv(key, groups), repeat_kv(value, groups), text_mask)
        block = (rules.query_BHTD, *rules.each_row(len(query)), rule_mask)
        out = merged_attention(*text, *block, scale, rules.shift)
        if base_attention is _sdpa:
            seen_BT = None  # where no rule is seen, the merge leaves SDPA's own output
    else:
        mask = None
        if tokens > 1 or attention_mask is not None or rules.visible_BTR is not None or rules.shift:
            mask = joint_mask(rules, attention_mask, tokens, length, query)
        few = tokens == 1 or tokens * (length + rules.key_BHRD.shape[2]) <= FEW_SCORES
        if few and query.dtype == torch.float32 and not dropout:
            out = _plain(query, key, value, rules, mask, scale)
        else:
            out = _fused(query, repeat_kv(key, groups), repeat_kv(value, groups), rules, mask, scale, dropout)
    out = out.transpose(1, 2).contiguous()
    if seen_BT is not None and not bool(seen_BT.all()):
        # A row that sees no rule must be the base model's, to the last bit.
        out = torch.where(seen_BT[:, :, None, None], out, base()[0])
    return out, None


def _plain(
    query: Tensor, key: Tensor, value: Tensor, rules: AttendedRules, mask: Tensor | None, scale: float
) -> Tensor:
    """Attend with one softmax over two blocks of scores; text keys and values are read once per group of heads."""
    batch, heads, tokens, head_dim = query.shape
    count, groups = rules.key_BHRD.shape[2], batch * key.shape[1]

    # Three dimensions and bmm: at one token, matmul's own bookkeeping costs as much as the products.
    def flat(tensor: Tensor, first: int) -> Tensor:
        return tensor.reshape(first, -1, tensor.shape[-1])

    shared = len(rules.key_BHRD) < batch
    blocks = heads if shared else batch * heads
    rule_key, rule_value = flat(rules.key_BHRD, blocks), flat(rules.value_BHRD, blocks)
    rule_query = flat(_turned(rules.query_BHTD, shared), blocks)
    text = torch.bmm(flat(query, groups), flat(key, groups).transpose(1, 2)).view(batch * heads, tokens, -1)
    found = torch.bmm(rule_query, rule_key.transpose(1, 2))
    if shared:  # what all rows share is read once, by the queries of all rows
        found = flat(_turned(found.view(heads, batch, tokens, -1), True), batch * heads)
    scores = torch.cat([found, text], -1) * scale
    if mask is not None:
        scores = scores.view(batch, heads, tokens, -1)
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min) if is_bool else scores + mask
        scores = scores.view(batch * heads, tokens, -1)
    weights = scores.softmax(-1)
    read = torch.bmm(flat(weights[..., count:], groups), flat(value, groups))
    of_rules = weights[..., :count]
    if shared:
        of_rules = flat(_turned(of_rules.view(batch, heads, tokens, -1), True), heads)
        rules_read = torch.bmm(of_rules, rule_value).view(heads, batch, tokens, head_dim)
        return read.view(batch, heads, tokens, head_dim) + _turned(rules_read, True)
    out = torch.baddbmm(read.view(batch * heads, tokens, head_dim), of_rules, rule_value)
    return out.view(batch, heads, tokens, head_dim)


def _turned(tensor: Tensor, turn: bool) -> Tensor:
    """Change the places of rows and heads."""
    return tensor.transpose(0, 1) if turn else tensor


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rules: AttendedRules,
    mask: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend with one SDPA call over doubled head dimensions; keys and values have all heads."""
    head_dim = query.shape[-1]
    rule_key, rule_value = rules.each_row(len(query))
    joint_query = torch.cat([query, rules.query_BHTD], -1)
    joint_key = torch.cat([_pad(rule_key, left=head_dim), _pad(key, right=head_dim)], 2)
    joint_value = torch.cat([rule_value, value], 2)
    if query.device.type == "cpu":
        joint_value = _pad(joint_value, right=head_dim)
    return nn.functional.scaled_dot_product_attention(
        joint_query, joint_key, joint_value, attn_mask=mask, dropout_p=dropout, scale=scale
    )[..., :head_dim]


def joint_mask(
    rules: AttendedRules, attention_mask: Tensor | None, tokens: int, length: int, like: Tensor
) -> Tensor:
    """Return the additive or boolean mask over [rules | text]."""
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
            return torch.cat([visible, text], -1)
        lowest = torch.finfo(like.dtype).min
        text = torch.where(text, 0.0, lowest).to(like.dtype)
    else:
        text = text.expand(batch, 1, tokens, length)
    lowest = torch.finfo(like.dtype).min
    added = torch.where(visible, rules.shift, lowest).to(like.dtype)
    return torch.cat([added, text], -1)


def _pad(tensor: Tensor, left: int = 0, right: int = 0) -> Tensor:
    return nn.functional.pad(tensor, (left, right))
