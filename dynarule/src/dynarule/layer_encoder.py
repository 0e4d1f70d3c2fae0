"""The first layers of the answering model itself as the encoder of its rules.

A sentence encoder writes rules in a language of its own, which an adapter has to learn from nothing. What the model's
own first layers make of a rule's words is already what its queries and its later layers are made of, so adapters learn
to find and to read several times sooner, and no second model is needed. Measured on a small base, the same training
otherwise: Recall@1 of a step among 1,000 rules 0.75 after 300 steps, where all-MiniLM-L6-v2 reached 0.59.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import attention
from .adapter import attention_blocks

PREFIX = "layers:"


class _Reached(Exception):
    """Ends a forward pass at the layer whose output was wanted."""

    def __init__(self, hidden_BTC: Tensor) -> None:
        self.hidden_BTC = hidden_BTC


class LayerEncoder:
    """Mean over a text's tokens of what a model's first layers make of them, to unit length.

    The state of a token is taken as the next layer reads it, after that layer's norm: in the residual stream itself a
    few channels, and the first token, can be hundreds of times as large as the rest.

    Parameters
    ----------
    model : PreTrainedModel
        The model that will answer. It is not changed, and must not be under `dynarule.attach` while rules are encoded.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    layers : int
        How many of the first layers, 1 or more.
    batch_size : int
        Texts at once.

    Attributes
    ----------
    fingerprint : str
        Number of layers and hash of their weights: equal fingerprints, equal embeddings up to rounding.
    dim : int
        P, the width of the model.

    Raises
    ------
    ValueError
        If the model has fewer layers.

    Examples
    --------
    >>> bank = RuleBank.from_file("rules.txt", LayerEncoder(model, tokenizer))  # doctest: +SKIP
    """

    def __init__(self, model: nn.Module, tokenizer: Any, layers: int = 1, batch_size: int = 128) -> None:
        blocks = attention_blocks(model)
        if not 1 <= layers <= len(blocks):
            raise ValueError(f"layers must be 1 to {len(blocks)}, the model's, got {layers}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        self.model, self.tokenizer, self.layers, self.batch_size = model, tokenizer, layers, batch_size
        self.dim = int(model.config.hidden_size)  # type: ignore[union-attr,arg-type]
        self.fingerprint = f"{PREFIX}{layers}@{_weights_hash(blocks[:layers])} mean norm=l2"

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors, fp32 (N, P), on the CPU.

        Raises
        ------
        ValueError
            If a rule memory is attached to the model, or a text has no tokens.
        """
        if self.model.config._attn_implementation == attention.NAME:  # type: ignore[union-attr]
            raise ValueError(
                "rules are encoded by the model without rules; leave the block of `attach` first"
            )
        tokens = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if len(texts) else []
        empty = next((i for i, ids in enumerate(tokens) if not ids), None)
        if empty is not None:
            raise ValueError(f"text {empty} has no tokens: {texts[empty]!r}; expected a rule")
        found = torch.zeros(len(texts), self.dim)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))  # alike in length: little padding
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            found[part] = self._encode([tokens[i] for i in part]).cpu()
        return found

    @torch.no_grad()
    def _encode(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Return unit vectors (B, P)."""
        device = next(self.model.parameters()).device
        mask_BT = torch.zeros(len(tokens), max(map(len, tokens)), dtype=torch.long)
        ids_BT = torch.zeros_like(mask_BT)
        for row, ids in enumerate(tokens):
            ids_BT[row, : len(ids)], mask_BT[row, : len(ids)] = torch.tensor(ids), 1
        mask_BT = mask_BT.to(device)
        hidden_BTC = self._hidden(ids_BT.to(device), mask_BT).float()
        return nn.functional.normalize((hidden_BTC * mask_BT[..., None]).sum(1), dim=-1)

    def _hidden(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return what the layer after them, or the head, is given to read (B, T, C)."""
        was_training = self.model.training
        handle = self._next_norm().register_forward_hook(_stop)
        try:
            self.model.eval()
            self.model.get_decoder()(ids_BT, attention_mask=mask_BT, use_cache=False)  # type: ignore[operator]
        except _Reached as reached:
            return reached.hidden_BTC
        finally:
            handle.remove()
            self.model.train(was_training)
        raise RuntimeError("the model never ran its own layer")

    def _next_norm(self) -> nn.Module:
        decoder: Any = self.model.get_decoder()  # type: ignore[operator]
        return (
            decoder.layers[self.layers].input_layernorm if self.layers < len(decoder.layers) else decoder.norm
        )


def _weights_hash(blocks: Sequence[nn.Module]) -> str:
    """Hash attention weights, in fp32: adapters change a row of the embedding matrix and add modules, never these."""
    digest = hashlib.sha256()
    for block in blocks:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight: Tensor = getattr(block, name).weight
            digest.update(weight.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _stop(_module: nn.Module, _args: Any, output: Any) -> None:
    raise _Reached(output)


def parse_layers(encoder: str) -> int | None:
    """Return N of an encoder called ``layers:N``, None for any other.

    Raises
    ------
    ValueError
        If N is no positive whole number.

    Examples
    --------
    >>> parse_layers("layers:2"), parse_layers("minilm")
    (2, None)
    """
    if not encoder.startswith(PREFIX):
        return None
    count = encoder.removeprefix(PREFIX)
    if not count.isdecimal() or int(count) < 1:
        raise ValueError(
            f"encoder {encoder!r}: expected layers:N, the first N layers of the model, such as layers:1"
        )
    return int(count)
