"""Rectangular attention under a name that transformers' models can be set to, see `dynarule.attach`."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import AttendedRules
from .kernels import attend

NAMES = {"sdpa": "dynarule", "eager": "dynarule_eager"}
"""What transformers calls this attention, by the implementation it stands in for."""
READ_WITH = "dynarule_prompt"
"""Says with which prompt's rules a text was read: an attribute of its key-value cache, an argument of its layers."""


def register() -> None:
    """Tell transformers the attention functions' names; called when a memory is first attached, never at import."""
    for before, name in NAMES.items():
        base = sdpa_attention_forward if before == "sdpa" else _eager
        ALL_ATTENTION_FUNCTIONS.register(name, partial(attention_forward, base))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS[before])


def is_attached(model: nn.Module) -> bool:
    """Say whether a rule memory is attached to a model."""
    config: Any = model.config
    return config._attn_implementation in NAMES.values()


def _eager(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Call the eager attention of the model's own family; the class may be a wrapper's, so its bases are asked too."""
    homes = (sys.modules[kind.__module__] for kind in type(module).__mro__)
    own = next(home.eager_attention_forward for home in homes if hasattr(home, "eager_attention_forward"))
    return own(module, *args, **kwargs)


def attention_forward(
    base_attention: Callable[..., tuple[Tensor, Tensor | None]],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    attended_rules: AttendedRules | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend to rules and text: (B, T, H, D), and no weights; without rules, exactly what the base's attention does."""

    def base() -> tuple[Tensor, Tensor | None]:
        return base_attention(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )

    if attended_rules is None:
        return base()
    if attended_rules.query_BHTD is None:
        attended_rules = replace(attended_rules, query_BHTD=query)
    if query.dtype != value.dtype:  # under autocast RoPE widens queries and keys
        query, key = query.to(value), key.to(value)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = attend(query, key, value, attention_mask, attended_rules, scale, dropout)
    out = out.transpose(1, 2).contiguous()
    if attended_rules.visible_BTR is not None and not torch.is_grad_enabled():
        seen_BT = attended_rules.visible_BTR.any(-1)
        if not bool(seen_BT.all()):  # a token that sees no rule is the base model's, to the last bit
            out = torch.where(seen_BT[:, :, None, None], out, base()[0])
    return out, None
