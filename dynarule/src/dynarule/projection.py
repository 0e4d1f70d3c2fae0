r"""The trained part: W~_Q, W~_K, W~_V of every layer that holds rules.

Tensor suffixes, here and everywhere in the package: B batch, T tokens, H heads, D head dim, C hidden size, P encoder
dim, M rules, K kept rules, S steps.

Scoring moves the query into encoder space instead of moving every rule into the layer. With a key
:math:`k = LN(W e + b)` over its full width F = H D, a query q, and :math:`\bar q = q - mean(q)`,

.. math:: q \cdot k = (e \cdot W^T \bar q + b \cdot \bar q) / \sigma(e),

which is exact. So one matrix of embeddings serves all layers, and a rule costs one number, 1 / sigma, per layer.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["RuleProjection", "score_keys"]

LAYER_NORM_EPS = 1e-5
FLOATS = torch.float64, torch.float32, torch.bfloat16, torch.float16
CACHE_TILE = 1 << 18  # numbers of a half-precision tile widened at once; 1 MiB stays in a core's cache


class RuleProjection(nn.Module):
    """W~_Q, W~_K and W~_V of one layer, for an attention block of the base with ``q_proj`` and ``head_dim``."""

    def __init__(self, attention: nn.Module, encoder_dim: int) -> None:
        super().__init__()
        q_proj: Any = attention.q_proj
        width = q_proj.out_features
        self.head_dim = int(attention.head_dim)  # type: ignore[arg-type]
        self.q = nn.Linear(q_proj.in_features, width, bias=q_proj.bias is not None)
        self.k = nn.Linear(encoder_dim, width)
        self.v = nn.Linear(encoder_dim, width)
        weight = float_weight(q_proj, getattr(getattr(attention, "config", None), "dtype", None))
        if self.q.weight.is_meta and not weight.is_meta:
            raise ValueError("low_cpu_mem_usage=True is not supported, adapters are small; leave it out")
        # From the base model's query; keys and values at random.
        with torch.no_grad():
            self.q.weight.copy_(weight)
            if q_proj.bias is not None:
                self.q.bias.copy_(q_proj.bias)
        for linear in (self.k, self.v):
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.to(weight)

    def query(self, hidden_BTC: Tensor, q_norm: nn.Module | None = None) -> Tensor:
        """Return the rule query of every token, without RoPE: (B, H, T, D)."""
        query_BTF = self.q(hidden_BTC.to(self.q.weight.dtype)).to(hidden_BTC.dtype)
        query_BTHD = query_BTF.unflatten(-1, (-1, self.head_dim))
        if q_norm is not None:
            query_BTHD = q_norm(query_BTHD)
        return query_BTHD.transpose(1, 2)

    def keys(self, embeddings: Tensor) -> Tensor:
        """Project rule embeddings (..., P) to keys (..., F), F = H D, normed over their full width (SR-KI)."""
        key = self.k(embeddings)
        wide = torch.promote_types(key.dtype, torch.float32)
        return nn.functional.layer_norm(key.to(wide), key.shape[-1:], eps=LAYER_NORM_EPS).to(key.dtype)

    def values(self, embeddings: Tensor) -> Tensor:
        """Project conclusion embeddings (..., P) to values (..., F)."""
        return self.v(embeddings)

    def trained_to_read(self) -> Iterator[nn.Parameter]:
        """Yield what training through the model moves: all of it."""
        return self.parameters()

    def heads(self, flat: Tensor) -> Tensor:
        """Split (B, K, F) into (B, H, K, D)."""
        return flat.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    @torch.no_grad()
    def inverse_scale(self, embeddings_MP: Tensor, block: int = 65_536) -> Tensor:
        """Return 1 / sigma of every rule's key before normalisation, fp32 (M,).

        The variance is a quadratic form in the embedding, so it costs P x P per rule, not P x F.
        """
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

    def score(self, query_BHD: Tensor, embeddings_MP: Tensor, inverse_scale_M: Tensor) -> Tensor:
        """Score all rules for queries, fp32 (B, M): the mean over heads of q~ . k~ / sqrt(D)."""
        flat_BF = query_BHD.flatten(-2).float()
        flat_BF = flat_BF - flat_BF.mean(-1, keepdim=True)
        flat_BF = flat_BF / (query_BHD.shape[-2] * math.sqrt(self.head_dim))
        offset_B = flat_BF @ self.k.bias.float()
        scores_BM = dot_rows(flat_BF @ self.k.weight.float(), embeddings_MP) + offset_B[:, None]
        scores_BM *= inverse_scale_M
        return scores_BM


@torch.no_grad()
def float_weight(linear: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return the weight of a linear layer in floats, whatever it is quantised to.

    ``dtype`` is what a layer reads whose weight does not say so; None: fp32.
    """
    weight: Any = getattr(linear, "weight", None)
    if type(weight) in (Tensor, nn.Parameter) and weight.dtype in FLOATS:
        return weight.detach()
    known = getattr(weight, "dtype", None), dtype
    dtype = next((each for each in known if each in FLOATS), torch.float32)
    bias = linear.bias
    try:
        device = next(chain(linear.parameters(), linear.buffers())).device
        linear.bias = None
        # Libraries pack weights in ways of their own; what a layer makes of unit vectors is its weight in all of them.
        # With a gradient, or bitsandbytes packs 4 bits on a CPU for answers alone, and could not train any more.
        unit = torch.eye(linear.in_features, dtype=dtype, device=device, requires_grad=True)
        return linear(unit).T
    except Exception as error:  # whatever a library makes of a kernel or a state that it lacks
        raise ValueError(
            f"rule queries start from the base's own, and its q_proj, a quantised {type(linear).__name__}, does not "
            f"run here ({error!s:.80}); load the base in bf16 or fp32, or quantised by torchao or bitsandbytes"
        ) from None
    finally:
        linear.bias = bias


def score_keys(query_BSHD: Tensor, key_BKF: Tensor) -> Tensor:
    """Score projected keys (equation 4), the mean over heads of q~ . k~ / sqrt(D): (B, S, K), in at least fp32."""
    heads, head_dim = query_BSHD.shape[-2:]
    scale = heads * math.sqrt(head_dim)
    dtype = torch.promote_types(query_BSHD.dtype, torch.float32)
    with torch.autocast(query_BSHD.device.type, enabled=False):
        return query_BSHD.flatten(2).to(dtype) @ key_BKF.to(dtype).transpose(1, 2) / scale


@torch.no_grad()
def dot_rows(direction_BP: Tensor, keys_NP: Tensor) -> Tensor:
    """Return fp32 dot products (B, N) of fp32 directions with keys stored in fp32, bf16 or fp16, without gradient.

    On a CPU halves are widened a tile at a time into one buffer that stays in a core's cache. On a GPU the direction is
    split into a half and the rest, so that the product reads halves, sums in fp32 and loses nothing of the query.
    """
    if keys_NP.dtype == torch.float32:
        return direction_BP @ keys_NP.T
    if keys_NP.is_cuda and keys_NP.dtype in (torch.float16, torch.bfloat16):
        high = direction_BP.to(keys_NP.dtype)
        low = (direction_BP - high.float()).to(keys_NP.dtype)
        both = torch.mm(torch.cat([high, low]), keys_NP.T, out_dtype=torch.float32)
        return both[: len(high)] + both[len(high) :]
    tiles = keys_NP.split(max(1, CACHE_TILE // keys_NP.shape[1]))
    wide_RP = torch.empty(tiles[0].shape, dtype=torch.float32, device=keys_NP.device)
    return torch.cat([direction_BP @ wide_RP[: len(tile_RP)].copy_(tile_RP).T for tile_RP in tiles], 1)
