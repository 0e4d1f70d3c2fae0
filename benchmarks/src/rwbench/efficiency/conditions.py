"""The conditions that are timed against each other: a model, a prompt, and the rules that it may read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynarule.memory import LayerMemory

from dynarule import RuleAdapter, RuleBank

from .timing import timed

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
