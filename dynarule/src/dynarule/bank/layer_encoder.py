"""The first layers of the answering model itself as the encoder of its rules.

Queries and later layers are made of the same states, so adapters learn to find and to read sooner than with a sentence
encoder, and no second model is needed.
"""

from __future__ import annotations

import copy
import hashlib
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..attention_interface import is_attached
from ..base_model import attention_blocks, base_matrix, first_layers, padded
from .sources import listed

if TYPE_CHECKING:
    from transformers import DynamicCache

PREFIX = "layers:"
BATCH = 256


class LayerEncoder:
    """Mean over a text's tokens of what a model's first layers make of them, to unit length.

    The state of a token is taken as the next layer reads it, after that layer's norm: in the residual stream itself a
    few channels, and the first token, can be hundreds of times as large as the rest.

    The layers are copied and run in fp32 whatever the model's dtype, so that rules encoded in training and in serving
    agree.

    Parameters
    ----------
    model : PreTrainedModel
        The model that will answer; not under `dynarule.attach`. It is not changed.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    layers : int
        How many of the first layers, 1 or more.

    Attributes
    ----------
    fingerprint : str
        Number of layers and hash of their weights: equal fingerprints, equal embeddings up to rounding.
    dim : int
        P, the width of the model.
    dtype : str
        Of the model.

    Raises
    ------
    ValueError
        If the model has fewer layers, or a rule memory is attached to it.

    Examples
    --------
    >>> bank = RuleBank.from_file("rules.txt", LayerEncoder(model, tokenizer))  # doctest: +SKIP
    """

    def __init__(self, model: nn.Module, tokenizer: Any, layers: int = 1) -> None:
        blocks = attention_blocks(model)
        if not 1 <= layers <= len(blocks):
            raise ValueError(f"layers must be 1 to {len(blocks)}, the model's, got {layers}")
        if is_attached(model):
            raise ValueError("rules are encoded by the model without rules; leave `attach` first")
        self.tokenizer, self.layers = tokenizer, layers
        self.dim = int(model.config.hidden_size)  # type: ignore[union-attr,arg-type]
        self._embedding: nn.Embedding = base_matrix(model.get_input_embeddings())  # type: ignore[operator]
        self.dtype = str(self._embedding.weight.dtype).removeprefix("torch.")
        self._decoder: Any = frozen_layers(model, layers)
        weights = _weights_hash(self._embedding, self._decoder, tokenizer)
        self.fingerprint = f"{PREFIX}{layers}@{weights} mean norm=l2"

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors, fp32 (N, P), on the CPU; a text without tokens is refused."""
        texts = listed("texts", texts)
        # a rule spells no control token
        options = {"add_special_tokens": False, "split_special_tokens": True}
        tokens = self.tokenizer(texts, **options)["input_ids"] if texts else []
        empty = next((i for i, ids in enumerate(tokens) if not ids), None)
        if empty is not None:
            raise ValueError(f"text {empty} has no tokens: {texts[empty]!r}; expected a rule")
        vectors = torch.zeros(len(texts), self.dim)
        # Alike in length, so there is little padding, and in how they begin, so that is read once.
        order = sorted(range(len(tokens)), key=lambda i: (len(tokens[i]), tokens[i]))
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            vectors[part] = self._encode([tokens[i] for i in part]).cpu()
        return vectors

    @torch.no_grad()
    def _encode(self, tokens: Sequence[list[int]]) -> Tensor:
        """Return unit vectors (B, P).

        What all texts begin with is read once, and the rest of each after it: no token sees a later one.
        """
        from transformers import DynamicCache

        same = [one == other for one, other in zip(min(tokens), max(tokens), strict=False)]
        begun = min(same.index(False) if False in same else len(same), min(map(len, tokens)) - 1)
        begun *= len(tokens) > 1
        summed, cache = torch.zeros((), device=self._embedding.weight.device), None
        if begun:
            cache = DynamicCache(config=self._decoder.config)
            summed = self._read(torch.tensor([tokens[0][:begun]]), None, cache).sum(1)
            cache.batch_repeat_interleave(len(tokens))
        ids_BT, mask_BT = padded(tokens)
        states_BTC = self._read(ids_BT[:, begun:], mask_BT, cache)
        weights_BT1 = mask_BT[:, begun:, None].to(states_BTC)
        return nn.functional.normalize((states_BTC * weights_BT1).sum(1) + summed, dim=-1)

    def _read(self, ids_BT: Tensor, mask_BT: Tensor | None, cache: DynamicCache | None) -> Tensor:
        """Return the states of tokens (B, T, C), after those in a cache, which takes them up."""
        device = self._embedding.weight.device
        return self._decoder(
            inputs_embeds=self._embedding(ids_BT.to(device)).float(),
            attention_mask=None if mask_BT is None else mask_BT.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state


def frozen_layers(model: nn.Module, count: int) -> nn.Module:
    """Return a decoder of the first layers alone in fp32, ending in the norm with which the next layer begins."""
    first = first_layers(model.get_decoder(), count)  # type: ignore[operator]
    first.embed_tokens = nn.Identity()  # which is not copied
    first = copy.deepcopy(first)
    config = first.config
    config._attn_implementation = "sdpa"  # flash attention has no fp32
    first.layers, first.norm = first.layers.float(), first.norm.float()
    for layer in first.layers:
        # Without rules: the projections beside an attention block are no part of the encoder.
        layer.self_attn = getattr(layer.self_attn, "base_layer", layer.self_attn)
        layer.self_attn.config = config
    return first.eval().requires_grad_(False)


def _weights_hash(embedding: nn.Embedding, decoder: nn.Module, tokenizer: Any) -> str:
    """Hash the layers, adapters in them included, and what they are given for printable characters.

    Not the whole embedding matrix: it has a row that training changes, that of ``<search>``.
    """
    ids = tokenizer(string.printable, add_special_tokens=False)["input_ids"]
    probe = torch.tensor(ids, dtype=torch.long)
    rows = embedding(probe.to(embedding.weight.device))
    digest = hashlib.sha256()
    for name, value in [("probe", rows), *sorted(decoder.state_dict().items())]:
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
