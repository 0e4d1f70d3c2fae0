"""States of a bank's rules in a file beside it, computed once: ``dynarule bank states``.

A safetensors file with one fp16 tensor a rule, keys and values as a model reads the rule alone, (2, layers, G, T, D).
It is called by a hash of the rule's tokens, so a rule that has changed has no states there, and a tokenizer that has
changed finds none; the metadata name the model, and another one reads nothing. A rule is read from the disk when it is
asked for. Nothing but `write_states` ever writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._files import changing, replacing
from ..bank.storage import write_tensors
from ..base_model import HASHED_ROWS
from .unread import States

if TYPE_CHECKING:
    from .rule_states import RuleStates

FILE, FORMAT = "states.safetensors", "dynarule states 1"
BATCH = 64
"""Rules that are read in one forward."""


class StatesFile:
    """The states that a model has in a bank's folder, none where there is no file or it is another model's."""

    def __init__(self, folder: Path | None, model: nn.Module) -> None:
        from safetensors import SafetensorError, safe_open

        self._file: Any = None
        self._names: frozenset[str] = frozenset()
        if folder is None or not (folder / FILE).is_file():
            return
        try:
            file = safe_open(folder / FILE, "pt")
            metadata = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{folder / FILE} is damaged ({error}); run: dynarule bank states {folder}"
            ) from error
        config: Any = model.get_decoder().config  # type: ignore[operator]
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._path, self._sizes = folder / FILE, (config.num_hidden_layers, config.num_key_value_heads, width)
        if metadata.get("format") == FORMAT and metadata.get("model") == model_digest(model) != "":
            self._file, self._names = file, frozenset(file.keys())

    def __len__(self) -> int:
        return len(self._names)

    def get(self, lead: Sequence[int], ids: Sequence[int], like: Tensor) -> States | None:
        """Return the states of a rule's own tokens, behind ``lead``, where and as ``like`` is; None: not there."""
        if not self._names or (name := digest_of([*lead, *ids])) not in self._names:
            return None
        states, (layers, groups, width) = self._file.get_tensor(name), self._sizes
        whole = states.shape == (2, layers, groups, len(ids), width) and states.dtype == torch.float16
        if not whole or not bool(states.isfinite().all()):
            raise ValueError(
                f"{self._path} is damaged (states of {tuple(states.shape)} {states.dtype}, or not finite); run: "
                f"dynarule bank states {self._path.parent}"
            )
        key, value = states.to(like)
        return key, value


def digest_of(ids: Sequence[int]) -> str:
    """Return what a rule is called that is read as some tokens."""
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:32]


def model_digest(model: nn.Module) -> str:
    """Hash rows of every weight of a model that reads rules; ``""`` where they are no plain tensors.

    As in `dynarule.base_model.weights_hash`, but of all weights, to the last bit: another dtype is another model. What
    an adapter of rules adds reads no rule's text.
    """
    decoder: Any = model.get_decoder()  # type: ignore[operator]
    names = ("model_type", "rope_parameters", "rms_norm_eps", "hidden_act", "sliding_window")
    facts = [str(getattr(decoder.config, name, None)) for name in names]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, weight in decoder.named_parameters():
        if "dynarule_" in name or "trainable_tokens_" in name:
            continue
        if type(weight) not in (Tensor, nn.Parameter) or weight.is_meta:
            return ""
        name = name.replace("base_layer.", "").replace("token_adapter.", "")
        rows = weight.detach()[:HASHED_ROWS].cpu().contiguous()
        digest.update(f"{name} {weight.dtype} {tuple(rows.shape)}".encode())
        digest.update(rows.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def write_states(
    folder: Path, states: RuleStates, texts: Sequence[str], progress: Callable[[int, int], None]
) -> int:
    """Write the own states of a bank's rules into its folder, whole or not at all; return how many bytes they are.

    Those that ``states`` finds in the folder are not computed again.
    """
    model = model_digest(states.model)
    if not model:
        raise ValueError(
            "the model's weights are no plain tensors, so nothing would tell it from another; load it in fp32, fp16 or "
            "bf16"
        )
    tokens = {text: states.tokens(text) for text in texts}
    named = {digest_of(lead + ids): text for text, (lead, ids) in tokens.items()}
    order = sorted(named, key=lambda name: len(tokens[named[name]][1]))  # rules of a batch are about as long
    layers, groups, _, width = states(texts[:1])[0][0].shape
    shapes = [(2, layers, groups, len(tokens[named[name]][1]), width) for name in order]
    like = [torch.empty(shape, dtype=torch.float16, device="meta") for shape in shapes]

    def parts() -> Iterator[Tensor]:
        for start in range(0, len(order), BATCH):
            for pair in states([named[name] for name in order[start : start + BATCH]]):
                yield torch.stack(pair).to("cpu", torch.float16)
            progress(min(start + BATCH, len(order)), len(order))

    with changing(folder), replacing(folder / FILE) as part:
        write_tensors(part, dict(zip(order, like, strict=True)), {"format": FORMAT, "model": model}, parts())
    return sum(each.nbytes for each in like)
