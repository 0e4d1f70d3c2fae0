r"""The trained part: W~_Q, W~_K, W~_V of every layer that holds rules.

Tensor suffixes, here and everywhere in the package: B batch, T tokens, H heads, D head dim, C hidden size, P encoder
dim, M rules, K kept rules, S steps.

Scoring moves the query into encoder space instead of moving every rule into the layer. With a key
:math:`k = LN(W e + b)` over its full width F = H D, a query q, and :math:`\bar q = q - mean(q)`,

.. math:: q \cdot k = (e \cdot W^T \bar q + b \cdot \bar q) / \sigma(e),

which is exact. So one matrix of embeddings serves all layers, and a rule costs one number, 1 / sigma, per layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import RuleMemoryConfig

LAYER_NORM_EPS = 1e-5
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types on which the laws are tested; the attention of others has parts that rules would bypass (sinks, caps)."""


class RuleProjection(nn.Module):
    """W~_Q, W~_K and W~_V of one layer.

    Parameters
    ----------
    attention : torch.nn.Module
        The attention block of the base model, with ``q_proj``, ``head_dim`` and maybe ``q_norm``.
    encoder_dim : int
        P.
    key_norm : bool
        LayerNorm without parameters over the full width of a key (SR-KI).
    """

    def __init__(self, attention: nn.Module, encoder_dim: int, key_norm: bool) -> None:
        super().__init__()
        q_proj = attention.q_proj
        assert isinstance(q_proj, nn.Linear)
        width = q_proj.out_features
        self.head_dim = int(attention.head_dim)  # type: ignore[arg-type]
        self.key_norm = key_norm
        self.q = nn.Linear(q_proj.in_features, width, bias=q_proj.bias is not None)
        self.k = nn.Linear(encoder_dim, width)
        self.v = nn.Linear(encoder_dim, width)
        self.reset(q_proj)
        self.to(q_proj.weight.device, q_proj.weight.dtype)

    @torch.no_grad()
    def reset(self, q_proj: nn.Linear) -> None:
        """Start from the base model's query; keys and values at random (Xavier normal, zero bias)."""
        self.q.weight.copy_(q_proj.weight)
        if q_proj.bias is not None:
            self.q.bias.copy_(q_proj.bias)
        for linear in (self.k, self.v):
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def query(self, hidden_BTC: Tensor, q_norm: nn.Module | None = None) -> Tensor:
        """Return the rule query of every token, without RoPE: (B, H, T, D)."""
        query_BTHD = self.q(hidden_BTC).unflatten(-1, (-1, self.head_dim))
        if q_norm is not None:
            query_BTHD = q_norm(query_BTHD)
        return query_BTHD.transpose(1, 2)

    def keys(self, embeddings: Tensor) -> Tensor:
        """Project rule embeddings (..., P) to keys (..., F), F = H D."""
        key = self.k(embeddings)
        if self.key_norm:
            wide = torch.promote_types(key.dtype, torch.float32)
            key = nn.functional.layer_norm(key.to(wide), key.shape[-1:], eps=LAYER_NORM_EPS).to(key.dtype)
        return key

    def values(self, embeddings: Tensor) -> Tensor:
        """Project conclusion embeddings (..., P) to values (..., F)."""
        return self.v(embeddings)

    def heads(self, flat: Tensor) -> Tensor:
        """Split (B, K, F) into (B, H, K, D)."""
        return flat.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    @torch.no_grad()
    def inverse_scale(self, embeddings_MP: Tensor, block: int = 65_536) -> Tensor:
        """Return 1 / sigma of every rule's key before normalisation, fp32 (M,); ones without LayerNorm.

        The variance is a quadratic form in the embedding, so it costs P x P per rule, not P x F.
        """
        if not self.key_norm:
            return torch.ones(len(embeddings_MP), device=embeddings_MP.device)
        weight = self.k.weight.float()
        bias = self.k.bias.float()
        weight = weight - weight.mean(0)
        bias = bias - bias.mean()
        width = len(bias)
        gram_PP = weight.T @ weight
        cross_P, constant = weight.T @ bias, bias @ bias
        scales = []
        for rows in embeddings_MP.split(block):
            e = rows.float()
            square = ((e @ gram_PP) * e).sum(-1) + 2 * (e @ cross_P) + constant
            scales.append(torch.rsqrt(square.clamp_min(0) / width + LAYER_NORM_EPS))
        return torch.cat(scales)

    def score(self, query: Tensor, embeddings_MP: Tensor, inverse_scale_M: Tensor) -> Tensor:
        """Score all rules for queries, in encoder space: the mean over heads of q~ . k~ / sqrt(D).

        Parameters
        ----------
        query : Tensor, (..., H, D)
            Rule queries, or their mean over tokens.
        embeddings_MP, inverse_scale_M : Tensor
            The bank's keys, and `inverse_scale` of them.

        Returns
        -------
        Tensor, (..., M)
            fp32 scores.
        """
        flat = query.flatten(-2).float()
        if self.key_norm:
            flat = flat - flat.mean(-1, keepdim=True)
        direction = flat @ self.k.weight.float()
        offset = flat @ self.k.bias.float()
        scores = direction.to(embeddings_MP.dtype) @ embeddings_MP.T
        heads = query.shape[-2]
        return (scores.float() + offset[..., None]) * inverse_scale_M / (heads * math.sqrt(self.head_dim))


class RuleAdapter(nn.Module):
    """The projections of all layers that hold rules, by layer number.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model of a supported family (`FAMILIES`).
    config : RuleMemoryConfig
        Which layers, which width, whether keys are normalised.

    Attributes
    ----------
    encoder : str
        Name and revision of the encoder it was trained with; ``""`` fits every bank of the right width.
    """

    def __init__(self, model: nn.Module, config: RuleMemoryConfig) -> None:
        super().__init__()
        blocks = attention_blocks(model)
        if config.confidence_layer is not None and config.confidence_layer >= len(blocks):
            raise ValueError(
                f"confidence_layer {config.confidence_layer} is not among the model's layers 0 to {len(blocks) - 1}"
            )
        self.config = config
        self.encoder = ""
        self.num_layers = len(blocks)
        self.layers = nn.ModuleDict(
            {
                str(layer): RuleProjection(blocks[layer], config.encoder_dim, config.key_norm)
                for layer in config.layers(len(blocks))
            }
        )

    def __getitem__(self, layer: int) -> RuleProjection:
        return self.layers[str(layer)]  # type: ignore[return-value]

    def __contains__(self, layer: int) -> bool:
        return str(layer) in self.layers


def attention_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the attention blocks of a model, by layer.

    Raises
    ------
    ValueError
        If the model is of no supported family.
    """
    check_family(model)
    return [module for name, module in model.named_modules() if name.rsplit(".", 1)[-1] == "self_attn"]


def check_family(model: nn.Module) -> None:
    """Refuse a model whose attention is not known to be queries, keys, values and one softmax.

    Raises
    ------
    ValueError
        If its ``model_type`` is not among `FAMILIES`.
    """
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family not in FAMILIES:
        raise ValueError(
            f"{type(model).__name__} is of model type {family!r}, whose attention rules cannot join; load a base model "
            f"of a supported type: {', '.join(FAMILIES)}"
        )


def check_fit(adapter: RuleAdapter, model: nn.Module) -> list[nn.Module]:
    """Refuse a model of another depth or width than the adapter's, and return the model's attention blocks.

    Raises
    ------
    ValueError
        If the adapter was made for a model of another shape.
    """
    blocks = attention_blocks(model)
    if len(blocks) != adapter.num_layers:
        raise ValueError(
            f"the adapter was made for {adapter.num_layers} layers, this model has {len(blocks)}; "
            "load the adapter of this base model"
        )
    for layer, block in enumerate(blocks):
        if layer not in adapter:
            continue
        rule_query, query = adapter[layer].q, block.q_proj
        made = (rule_query.in_features, rule_query.out_features, adapter[layer].head_dim)
        found = (query.in_features, query.out_features, block.head_dim)  # type: ignore[union-attr]
        if made != found:
            raise ValueError(
                "the adapter was made for hidden size {}, queries of width {} and head_dim {}; this model has {}, {} "
                "and {} (layer {}); load the adapter of this base model".format(*made, *found, layer)
            )
    return blocks
