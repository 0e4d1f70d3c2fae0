"""What rules join: the supported families, their attention blocks, and what tells one base model from another."""

from __future__ import annotations

import copy
import hashlib
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

__all__ = ["FAMILIES", "BaseModel", "attention_blocks", "first_layers", "weights_hash"]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types on which the laws are tested; the attention of others has parts that rules would bypass (sinks, caps)."""
LARGEST = 1 << 20
"""Of what a model counts: more layers, or wider ones, has none; a file that says so wants our memory."""
_KINDS: dict[Any, str] = {bool: "true or false", str: "a text"}
HASHED = ("q_proj", "k_proj", "v_proj", "o_proj")
HASHED_ROWS = 2  # of each matrix: another training, or another seed, changes every row


def attention_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the attention blocks of a model, by layer; one of another family than `FAMILIES` is refused."""
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family not in FAMILIES:
        raise ValueError(
            f"{type(model).__name__} is of model type {family!r}, whose attention rules cannot join; load a base model "
            f"of a supported type: {', '.join(FAMILIES)}"
        )
    return [module for name, module in model.named_modules() if name.rsplit(".", 1)[-1] == "self_attn"]


def first_layers(decoder: Any, count: int) -> Any:
    """Return a decoder of the first layers alone, ending in the norm with which the next layer begins.

    Its modules are those of the decoder, of ``model.get_decoder()``, hooks on them included.
    """
    config = copy.deepcopy(decoder.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    with torch.device("meta"):  # a shell: everything in it is replaced
        first = type(decoder)(config)
    first.embed_tokens, first.rotary_emb = decoder.embed_tokens, decoder.rotary_emb
    first.layers = decoder.layers[:count]
    first.norm = decoder.layers[count].input_layernorm if count < len(decoder.layers) else decoder.norm
    return first.train(decoder.training)


@dataclass(frozen=True)
class BaseModel:
    """What an adapter must find in a model: its shapes, and some of its weights."""

    model_type: str  # family, such as qwen2
    num_layers: int
    hidden_size: int
    query_size: int  # width of q_proj
    head_dim: int
    query_bias: bool  # whether q_proj has a bias
    tied: bool  # whether the output matrix is the embedding matrix
    weights_hash: str = ""  # of the model; "" (an older adapter, a quantised model) is not compared

    def __post_init__(self) -> None:
        check_fields(self, most=LARGEST)

    @classmethod
    def of(cls, model: nn.Module) -> BaseModel:
        """Read a model."""
        blocks = attention_blocks(model)
        query, config = blocks[0].q_proj, model.config
        return cls(
            model_type=str(config.model_type),  # type: ignore[union-attr]
            num_layers=len(blocks),
            hidden_size=query.in_features,  # type: ignore[union-attr,arg-type]
            query_size=query.out_features,  # type: ignore[union-attr,arg-type]
            head_dim=int(blocks[0].head_dim),  # type: ignore[arg-type]
            query_bias=query.bias is not None,  # type: ignore[union-attr]
            tied=bool(config.tie_word_embeddings),  # type: ignore[union-attr]
            weights_hash=weights_hash(model),
        )

    def check(self, model: nn.Module, name: str) -> None:
        """Raise ValueError if a model has not the shape, or not the weights, of this one, called ``name``."""
        seen = BaseModel.of(model)
        for f in fields(self):
            wanted, given = getattr(self, f.name), getattr(seen, f.name)
            if f.name != "weights_hash" and wanted != given:
                raise ValueError(
                    f"the adapter was trained for a base with {f.name} {wanted}, this one has {given}: another base "
                    f"model; load {name or self.model_type!r}"
                )
        if self.weights_hash and seen.weights_hash and self.weights_hash != seen.weights_hash:
            raise ValueError(
                f"the adapter was trained for {name or self.model_type!r} with weights {self.weights_hash}, this model "
                f"has the same shape but weights {seen.weights_hash}; load the base model that the adapter was trained "
                "for, or train an adapter for this one"
            )


def weights_hash(model: nn.Module) -> str:
    """Hash a few rows of every layer's attention matrices, which no training here changes; ``""`` where it cannot be.

    Values are hashed as bf16, for one hash in fp32 and bf16. In fp16 small values are lost, quantised weights are other
    numbers, and offloaded ones are elsewhere: none is hashed. Nor are embeddings, or LoRA's matrices.
    """
    digest = hashlib.sha256()
    for block in attention_blocks(model):
        for name in HASHED:
            weight = getattr(getattr(block, name), "weight", None)
            if not isinstance(weight, Tensor) or weight.dtype not in (torch.float32, torch.bfloat16):
                return ""
            data = weight.detach()
            # Subclasses (torchao's, a shard of several devices) claim a float dtype and hold something else.
            if type(weight) not in (Tensor, nn.Parameter) or data.is_meta or data.ndim != 2:
                return ""
            rows = data[:HASHED_ROWS].to("cpu", torch.bfloat16).contiguous()
            digest.update(f"{name} {tuple(data.shape)}".encode())
            digest.update(rows.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def padded(rows: Sequence[Sequence[int]], pad: int = 0, side: str = "right") -> tuple[Tensor, Tensor]:
    """Return rows of token ids, filled up on a side to the longest, and what is no padding, 1 or 0: (B, T) each."""
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    fill = partial(nn.utils.rnn.pad_sequence, batch_first=True, padding_side=side)
    return fill(ids, padding_value=pad), fill([torch.ones_like(row) for row in ids])


def base_matrix(module: nn.Module) -> Any:
    """Return an embedding or output layer without PEFT's trained rows around it."""
    return getattr(getattr(module, "token_adapter", None), "base_layer", module)


def check_fields(
    settings: Any, zero: Collection[str] = (), most: float = math.inf, names: Collection[str] | None = None
) -> None:
    """Raise ValueError that names the first field of a dataclass whose value is not of its type.

    Numbers are finite, positive unless they may be ``zero``, and whole ones are ``most`` at most. Only the fields of
    ``names`` are looked at, by default all.
    """
    hints = get_type_hints(type(settings))
    for name in names or [field.name for field in fields(settings)]:
        value, hint = getattr(settings, name), hints[name]
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            if type(value) not in map(type, choices) or value not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {value!r:.60}")
            continue
        union = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        kinds = tuple(get_origin(kind) or kind for kind in union if kind is not NoneType)
        if value is None and NoneType in union:
            continue
        if kinds in ((int,), (float,)):
            check_number(name, value, kinds == (int,), name in zero, most, ", or None" * (NoneType in union))
        elif not isinstance(value, kinds):
            wanted = " or ".join(_KINDS.get(kind, f"a {kind.__name__}") for kind in kinds)
            raise ValueError(f"{name} must be {wanted}, got {value!r:.60}")


def check_number(
    name: str,
    value: Any,
    whole: bool = False,
    zero: bool = False,
    most: float = math.inf,
    otherwise: str = "",
) -> None:
    """Raise ValueError unless a value is a number that is positive, or 0 or more, and that a float can hold."""
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    least = 0 if zero else math.ulp(0)
    # a NaN would be trained with to the end
    if not (is_number and least <= value <= sys.float_info.max and (value <= most or not whole)):
        wanted = ("0 or more" if zero else "positive") + " and whole" * (whole and not isinstance(value, int))
        limit = f", {most:,} at most" if whole and most < math.inf else ""
        raise ValueError(f"{name} must be {wanted}{limit}{otherwise}, got {value!r:.60}")
