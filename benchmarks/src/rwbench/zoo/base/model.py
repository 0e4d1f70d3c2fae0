"""The base's architecture, its first weights, and a forward pass that compiles to few kernels.

The weights are those of transformers' ``LlamaForCausalLM`` with biases, and so is the mathematics (a test holds them
together); only the code of the training pass is ours, since fused it is several times faster on a CPU. It is no Qwen2,
which has the same biases, because transformers reads every tokenizer beside a ``qwen2`` configuration as Qwen's own:
``AutoTokenizer`` and all tools built on it would cut this base's words into letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .tokenizer import END, PAD, TokenVocabulary

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

    from .recipe import Shape

EMBEDDING_STD = 0.02
OWN_SHARE = 0.5
"""Standard deviation of a form's own part of its first embedding, relative to the part of its stem."""
LOOK_BACK_SIZE = 6.0
FREE_HEADS = 2
"""Heads of the first layer that begin without a distance of their own."""


def new_base(shape: Shape, vocabulary: TokenVocabulary, seed: int) -> LlamaForCausalLM:
    """Return a random base; forms of one word (``▁royal``, ``Royal``, ``_royal``) begin near to each other."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=-(-len(vocabulary.tokens) // 64) * 64,  # spare rows: `<search>` takes one
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        attention_bias=True,
        pad_token_id=vocabulary.tokens.index(PAD),
        eos_token_id=vocabulary.tokens.index(END),
        bos_token_id=None,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    stems = {stem: i for i, stem in enumerate(dict.fromkeys(vocabulary.stems))}
    rows = torch.tensor([stems[stem] for stem in vocabulary.stems])
    with torch.no_grad():
        shared = torch.randn(len(stems), shape.hidden)[rows]
        own = torch.randn(len(rows), shape.hidden)
        both = (shared + OWN_SHARE * own) / (1 + OWN_SHARE**2) ** 0.5
        model.model.embed_tokens.weight[: len(rows)] = EMBEDDING_STD * both
    _look_back(model)
    return model


@torch.no_grad()
def _look_back(model: LlamaForCausalLM) -> None:
    """Set the biases of the first layer's heads so that head i begins by looking i + 1 tokens back.

    Lookup by content needs, before all else, states that know the tokens before them. The rotary scores of two
    constant vectors depend on the distance alone, so the biases can say it at once; without it, no lookup had emerged
    after 4.8 million tokens.
    """
    config: Any = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    width = config.hidden_size // heads
    pairs = width // 2
    frequency = config.rope_parameters["rope_theta"] ** -(torch.arange(pairs) * 2 / width)
    size = LOOK_BACK_SIZE * torch.exp2(-torch.arange(pairs) / 4)  # high frequencies tell neighbours apart
    attention: Any = model.model.layers[0].self_attn
    back = torch.arange(1, heads - FREE_HEADS + 1).unsqueeze(1) * frequency
    rotated = torch.cat((size * back.cos(), size * -back.sin()), dim=1)
    attention.q_proj.bias.view(heads, width)[: len(rotated)] = rotated
    attention.k_proj.bias.view(kv_heads, width)[:] = torch.cat((size, torch.zeros(pairs)))


def last_states(model: LlamaForCausalLM, ids_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Run the layers over whole sequences, padded on the right.

    Returns
    -------
    Tensor (B, T, C)
        The residual stream after the last layer, normalised, as the output matrix reads it.
    """
    config: Any = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    width = config.hidden_size // heads
    batch, length = ids_BT.shape
    cos, sin = _rotation(length, width, config.rope_parameters["rope_theta"], ids_BT.device)
    cos, sin = cos.to(dtype), sin.to(dtype)
    causal = torch.full((length, length), float("-inf"), dtype=dtype, device=ids_BT.device).triu(1)
    on_gpu = ids_BT.device.type == "cuda"
    x = F.embedding(ids_BT, model.model.embed_tokens.weight.to(dtype))
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        y = _norm(x, layer.input_layernorm.weight, config.rms_norm_eps)
        q, k, v = (
            _linear(y, part, dtype).view(batch, length, -1, width).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        k, v = (each.repeat_interleave(heads // kv_heads, dim=1) for each in (k, v))
        if on_gpu:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # on a CPU two products and a softmax beat the fused kernel's backward pass
            scores = torch.matmul(q * width**-0.5, k.transpose(2, 3)) + causal
            mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        x = x + _linear(mixed.transpose(1, 2).reshape(batch, length, -1), attention.o_proj, dtype)
        y = _norm(x, layer.post_attention_layernorm.weight, config.rms_norm_eps)
        mlp: Any = layer.mlp
        gate = F.silu(_linear(y, mlp.gate_proj, dtype)) * _linear(y, mlp.up_proj, dtype)
        x = x + _linear(gate, mlp.down_proj, dtype)
    return _norm(x, model.model.norm.weight, config.rms_norm_eps)


def _linear(x: Tensor, layer: nn.Linear, dtype: torch.dtype) -> Tensor:
    bias = None if layer.bias is None else layer.bias.to(dtype)
    return F.linear(x, layer.weight.to(dtype), bias)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps))).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _rotation(length: int, width: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    frequency = theta ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()
