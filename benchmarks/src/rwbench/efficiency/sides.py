"""How each method reads M rules: what stands beside the base model in a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynarule.bank.bank import RuleBank
from dynarule.bank.faiss_index import FaissIndex, use_index
from dynarule.config import dynarule_config, kblam_config
from dynarule.memory.hooks import attach
from dynarule.memory.serving import RuleMemory
from dynarule.projection import RuleAdapter

from .baselines import InjectedRules
from .embeddings import random_rows
from .lane import Lane
from .machine import random_tokens, timed
from .plan import Cell, Settings
from .statistics import spread

if TYPE_CHECKING:
    from torch import Tensor

TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass
class Side:
    """A method made ready for M rules.

    Attributes
    ----------
    lane : Lane
        To be timed.
    searches : bool
        Whether it has a ``<search>`` token to time.
    more : callable
        Figures of its own, asked after the timing.
    """

    lane: Lane
    searches: bool
    more: Callable[[], dict[str, Any]]


def build(settings: Settings, cell: Cell, model: Any, prompt: Tensor, search_token: int, cache: Path) -> Side:
    """Make a cell's method ready."""
    if cell.method == "prompting":
        return _prompting(settings, cell, model, prompt, search_token)
    keys, values = (
        random_rows(cache, cell.rules, settings.encoder_dim, settings.embeddings, settings.seed + which).to(
            settings.device
        )
        for which in (0, 1)
    )
    if cell.method == "dynarule":
        return _dynarule(settings, model, prompt, search_token, keys, values)
    every = 1 if cell.method == "inject-all" else 3
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    rules = InjectedRules(adapter, keys, values)
    lane = Lane(model, prompt, lambda: attach(model, rules))  # type: ignore[arg-type]
    return Side(lane, False, lambda: {"bytes_per_rule": {"keys and values": rules.nbytes / cell.rules}})


def _prompting(settings: Settings, cell: Cell, model: Any, prompt: Tensor, search_token: int) -> Side:
    import torch

    rules = random_tokens(
        cell.rules * settings.tokens_per_rule, search_token, settings.seed + 1, settings.device
    )
    lane = Lane(model, torch.cat([rules, prompt], 1))
    config = model.config
    head_dim = config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * model.dtype.itemsize
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Side(lane, False, lambda: {"bytes_per_rule": size})


def _dynarule(
    settings: Settings, model: Any, prompt: Tensor, search_token: int, keys: Tensor, values: Tensor
) -> Side:
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
    lane = Lane(model, prompt, lambda: attach(model, memory))

    def more() -> dict[str, Any]:
        name = index.config.kind if isinstance(index, FaissIndex) else "exact"
        found: dict[str, Any] = {"index": name, "bytes_per_rule": {}}
        if count:
            found["select_ms"] = _selection(settings, lane, adapter, bank)
            scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
            sizes = {"embeddings": (keys.nbytes + values.nbytes) / count, "1/sigma": scales / count}
            if isinstance(index, FaissIndex):
                sizes["index codes and ids"] = float(index.bytes_per_rule)
            found["bytes_per_rule"] = sizes
        return found

    return Side(lane, bool(count), more)


def _selection(settings: Settings, lane: Lane, adapter: RuleAdapter, bank: RuleBank) -> dict[str, Any]:
    """Time the searches of one prefill again, all layers: queries moved to encoder space, the best K rules found."""
    import torch

    queries: list[tuple[Any, Tensor]] = []
    search = bank.search

    def note(projection: Any, query_BHD: Tensor, top_k: int | None) -> Any:
        queries.append((projection, query_BHD))
        return search(projection, query_BHD, top_k)

    bank.search = note  # type: ignore[method-assign]
    try:
        lane.prefill(settings.device)
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
    from dynarule.bank.faiss_index import installed

    if installed():
        import faiss

        faiss.omp_set_num_threads(threads)
