"""The conditions that are timed against each other: the base model, and each method reading M rules."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynarule.bank import FaissIndex, use_index
from dynarule.memory import LayerMemory

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config

from .settings import DTYPES, Cell, ServingSettings
from .timing import spread, timed
from .workload import random_rows, random_tokens

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[float, float]
"""Wall and CPU seconds."""


@dataclass
class Condition:
    """A prompt and the way it is run: the base model alone, or with a method's rules."""

    model: Any  # of transformers; its weights are shared by both conditions of a pair
    prompt: Tensor  # (1, T) tokens
    attached: Callable[[], AbstractContextManager[Any]] = nullcontext  # in it the model is the method's
    searches: bool = False  # whether it has a <search> token to time
    figures: Callable[[], dict[str, Any]] = dict  # of its own, asked after the timing
    times: defaultdict[str, list[Pair]] = field(
        default_factory=lambda: defaultdict(list)
    )  # ttft, decode, search

    def prefill(self, device: str) -> Pair:
        """Read the prompt into a new cache and choose the first token."""
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self.model.config)
        return self.step(self.prompt, device)

    def step(self, ids: Tensor, device: str) -> Pair:
        """Read more tokens, (1, T), and choose the next."""
        import torch

        def work() -> None:
            logits = self.model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
            logits.argmax(-1)

        with torch.inference_mode(), self.attached():
            return timed(work, device)


class InjectedRules(LayerMemory):
    """All rules in attention, as KBLaM serves them.

    Keys and values are projected when it is made, as a server would do before the first prompt, and lie in memory
    as attention reads them: (1, H, M, D) per layer. The adapter has ``every=3`` for KBLaM's every third layer.
    """

    def __init__(self, adapter: RuleAdapter, keys_MP: Tensor, values_MP: Tensor) -> None:
        super().__init__(adapter)
        self._rules: dict[int, tuple[Tensor, Tensor]] = {}
        for layer in adapter.config.layers(adapter.num_layers):
            projection = adapter[layer]
            dtype = projection.k.weight.dtype
            key_1HMD = projection.heads(projection.keys(keys_MP.to(dtype))[None]).contiguous()
            value_1HMD = projection.heads(projection.values(values_MP.to(dtype))[None]).contiguous()
            self._rules[layer] = key_1HMD, value_1HMD

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules."""
        return layer in self._rules

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Return all rules of a layer, each visible to every token."""
        key_1HMD, value_1HMD = self._rules[layer]
        return key_1HMD, value_1HMD, None, key_1HMD.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(tensor.nbytes for pair in self._rules.values() for tensor in pair)


class RecordingBank(RuleBank):
    """A bank that remembers what it was asked while ``asked`` is a list, so that the searches can be timed alone."""

    asked: list[tuple[Any, ...]] | None = None

    def search(self, *query: Any) -> tuple[Tensor, Tensor]:
        """Search as the bank does."""
        if self.asked is not None:
            self.asked.append(query)
        return super().search(*query)


def build(settings: ServingSettings, cell: Cell, base: Condition, cache: Path) -> Condition:
    """Return a cell's method, made ready for its number of rules."""
    if cell.method == "prompting":
        return _prompting(settings, cell, base)
    keys, values = (
        random_rows(cache, cell.rules, settings.encoder_dim, settings.embeddings, settings.seed + which).to(
            settings.device
        )
        for which in (0, 1)
    )
    # A model of its own over the same weights: the adapter becomes a part of it.
    model = copy.deepcopy(base.model, {id(weight): weight for weight in base.model.parameters()})
    if cell.method == "dynarule":
        return _dynarule(settings, model, base.prompt, keys, values)
    every = 1 if cell.method == "inject-all" else 3
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    rules = InjectedRules(adapter, keys, values)
    return Condition(
        model,
        base.prompt,
        lambda: attach(model, rules),
        figures=lambda: {"bytes_per_rule": {"keys and values": rules.nbytes / cell.rules}},
    )


def _prompting(settings: ServingSettings, cell: Cell, base: Condition) -> Condition:
    import torch

    shape, count = settings.sizes, cell.rules * settings.tokens_per_rule
    rules = random_tokens(count, shape.search_token, settings.seed + 1, settings.device)
    per_token = 2 * shape.layers * shape.kv_heads * shape.hidden // shape.heads * DTYPES[settings.dtype]
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Condition(base.model, torch.cat([rules, base.prompt], 1), figures=lambda: {"bytes_per_rule": size})


def _dynarule(
    settings: ServingSettings, model: Any, prompt: Tensor, keys_MP: Tensor, values_MP: Tensor
) -> Condition:
    import torch

    count, shape = len(keys_MP), settings.sizes
    config = dynarule_config(settings.encoder_dim, confidence_layer=shape.layers // 2, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config).requires_grad_(False)
    names = [str(row) for row in range(count)]
    bank = RecordingBank(keys_MP, values_MP, names, [f"rule {name}" for name in names])
    set_faiss_threads(settings.threads)
    index = use_index(bank) if count else bank.index
    memory = RuleMemory(adapter, bank, shape.search_token)
    condition = Condition(model, prompt, lambda: attach(model, memory), searches=bool(count))

    def figures() -> dict[str, Any]:
        faiss = index if isinstance(index, FaissIndex) else None
        found: dict[str, Any] = {"index": faiss.kind if faiss else "exact", "bytes_per_rule": {}}
        if count:
            found["select_ms"] = _selection(settings, condition, bank)
            scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
            sizes = {"embeddings": (keys_MP.nbytes + values_MP.nbytes) / count, "1/sigma": scales / count}
            if faiss:
                sizes["index codes and ids"] = float(faiss.bytes_per_rule)
            found["bytes_per_rule"] = sizes
        return found

    condition.figures = figures
    return condition


def _selection(settings: ServingSettings, condition: Condition, bank: RecordingBank) -> dict[str, Any]:
    """Time the searches of one prefill again, all layers: queries moved to encoder space, the best K rules found."""
    import torch

    queries: list[tuple[Any, ...]] = []
    bank.asked = queries
    condition.prefill(settings.device)
    bank.asked = None

    def again() -> None:
        for query in queries:
            bank.search(*query)

    with torch.inference_mode():
        pairs = [timed(again, settings.device) for _ in range(max(3, settings.repeats))]
    return spread([1e3 * pair[settings.by_cpu_time] for pair in pairs])


def set_faiss_threads(threads: int) -> None:
    """Let faiss, where it is installed, use so many threads."""
    if find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(threads)
