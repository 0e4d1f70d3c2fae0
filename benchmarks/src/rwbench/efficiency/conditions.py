"""The conditions that are timed against each other: the base model, and each method reading M rules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynarule.adapter import RuleAdapter
from dynarule.attention import AttendedRules
from dynarule.bank.bank import RuleBank
from dynarule.bank.faiss_index import FaissIndex, use_index
from dynarule.config import dynarule_config, kblam_config
from dynarule.memory.hooks import attach
from dynarule.memory.serving import RuleMemory

from .embeddings import random_rows
from .machine import random_tokens, spread, timed
from .plan import Cell, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

Pair = tuple[float, float]
"""Wall and CPU seconds."""


@dataclass
class Condition:
    """A prompt and the way it is run: the base model alone, or with a method's rules.

    Attributes
    ----------
    model : PreTrainedModel
        Shared by both conditions of a pair.
    prompt : Tensor
        (1, T) tokens.
    attached : callable
        A context in which the model is the method's.
    searches : bool
        Whether it has a ``<search>`` token to time.
    figures : callable
        Figures of its own, asked after the timing.
    ttft, decode, search : list of (wall, CPU) seconds
        What was timed so far.
    """

    model: Any
    prompt: Tensor
    attached: Callable[[], AbstractContextManager[Any]] = nullcontext
    searches: bool = False
    figures: Callable[[], dict[str, Any]] = dict
    ttft: list[Pair] = field(default_factory=list)
    decode: list[Pair] = field(default_factory=list)
    search: list[Pair] = field(default_factory=list)

    def prefill(self, device: str) -> Pair:
        """Read the prompt into a new cache and choose the first token."""
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self.model.config)
        return self._forward(self.prompt, device)

    def step(self, token: Tensor, device: str) -> Pair:
        """Read one more token and choose the next."""
        return self._forward(token, device)

    def _forward(self, ids: Tensor, device: str) -> Pair:
        import torch

        def work() -> None:
            logits = self.model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
            logits.argmax(-1)

        with torch.inference_mode(), self.attached():
            return timed(work, device)


class InjectedRules:
    """All rules in attention, as KBLaM serves them; goes where a `dynarule.RuleMemory` goes.

    Keys and values are projected when it is made, as a server would do before the first prompt, and lie in memory
    as attention reads them: (1, H, M, D) per layer.

    Parameters
    ----------
    adapter : RuleAdapter
        With ``every=3`` for KBLaM's every third layer.
    keys_MP, values_MP : Tensor
        Embeddings.
    """

    def __init__(self, adapter: RuleAdapter, keys_MP: Tensor, values_MP: Tensor) -> None:
        self.adapter = adapter
        self._rules: dict[int, tuple[Tensor, Tensor]] = {}
        for layer in adapter.config.layers(adapter.num_layers):
            projection = adapter[layer]
            dtype = projection.k.weight.dtype
            key = projection.heads(projection.keys(keys_MP.to(dtype))[None]).contiguous()
            value = projection.heads(projection.values(values_MP.to(dtype))[None]).contiguous()
            self._rules[layer] = key, value

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Nothing changes with the tokens."""

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        """Return all rules; see `dynarule.RuleMemory.attended`."""
        if layer not in self._rules:
            return None
        key, value = self._rules[layer]
        return AttendedRules(self.adapter[layer].query(hidden_BTC), key, value)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(tensor.nbytes for pair in self._rules.values() for tensor in pair)


def build(
    settings: Settings, cell: Cell, model: Any, prompt: Tensor, search_token: int, cache: Path
) -> Condition:
    """Return a cell's method, made ready for its number of rules."""
    if cell.method == "prompting":
        return _prompting(settings, cell, model, prompt, search_token)
    keys, values = (
        random_rows(cache, cell.rules, settings.encoder_dim, settings.embeddings, settings.seed + which).to(
            settings.device
        )
        for which in (0, 1)
    )
    # A model of its own over the same weights: the adapter becomes a part of it.
    model = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    if cell.method == "dynarule":
        return _dynarule(settings, model, prompt, search_token, keys, values)
    every = 1 if cell.method == "inject-all" else 3
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    rules = InjectedRules(adapter, keys, values)
    return Condition(
        model,
        prompt,
        lambda: attach(model, rules),
        figures=lambda: {"bytes_per_rule": {"keys and values": rules.nbytes / cell.rules}},
    )


def _prompting(settings: Settings, cell: Cell, model: Any, prompt: Tensor, search_token: int) -> Condition:
    import torch

    rules = random_tokens(
        cell.rules * settings.tokens_per_rule, search_token, settings.seed + 1, settings.device
    )
    config = model.config
    head_dim = config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * model.dtype.itemsize
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Condition(model, torch.cat([rules, prompt], 1), figures=lambda: {"bytes_per_rule": size})


def _dynarule(
    settings: Settings, model: Any, prompt: Tensor, search_token: int, keys: Tensor, values: Tensor
) -> Condition:
    import torch

    count = len(keys)
    config = dynarule_config(
        settings.encoder_dim,
        confidence_layer=model.config.num_hidden_layers // 2,
        top_k=settings.top_k,
    )
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config).requires_grad_(False)
    bank = RuleBank(keys, values, [str(row) for row in range(count)], [f"rule {row}" for row in range(count)])
    set_faiss_threads(settings.threads)
    index = use_index(bank) if count else bank.index
    memory = RuleMemory(adapter, bank, search_token)
    condition = Condition(model, prompt, lambda: attach(model, memory), searches=bool(count))

    def figures() -> dict[str, Any]:
        name = index.config.kind if isinstance(index, FaissIndex) else "exact"
        found: dict[str, Any] = {"index": name, "bytes_per_rule": {}}
        if count:
            found["select_ms"] = _selection(settings, condition, adapter, bank)
            scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
            sizes = {"embeddings": (keys.nbytes + values.nbytes) / count, "1/sigma": scales / count}
            if isinstance(index, FaissIndex):
                sizes["index codes and ids"] = float(index.bytes_per_rule)
            found["bytes_per_rule"] = sizes
        return found

    condition.figures = figures
    return condition


def _selection(
    settings: Settings, condition: Condition, adapter: RuleAdapter, bank: RuleBank
) -> dict[str, Any]:
    """Time the searches of one prefill again, all layers: queries moved to encoder space, the best K rules found."""
    import torch

    queries: list[tuple[Any, Tensor]] = []
    search = bank.search

    def note(projection: Any, query_BHD: Tensor, *args: Any) -> Any:
        queries.append((projection, query_BHD))
        return search(projection, query_BHD, *args)

    bank.search = note  # type: ignore[method-assign,assignment]
    try:
        condition.prefill(settings.device)
    finally:
        del bank.search

    def again() -> None:
        for projection, query_BHD in queries:
            search(projection, query_BHD, adapter.config.top_k)

    with torch.inference_mode():
        pairs = [timed(again, settings.device) for _ in range(max(3, settings.repeats))]
    return spread([1e3 * pair[settings.clock == "cpu"] for pair in pairs])


def set_faiss_threads(threads: int) -> None:
    """Let faiss, where it is installed, use so many threads."""
    from dynarule.bank import faiss_installed

    if faiss_installed():
        import faiss

        faiss.omp_set_num_threads(threads)
