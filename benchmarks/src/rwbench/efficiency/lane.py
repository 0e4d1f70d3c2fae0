"""One side of a pair: a model with or without rules, run a prompt and a token at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .machine import timed

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[float, float]
"""Wall and CPU seconds."""


@dataclass
class Lane:
    """One side of a pair: a prompt, and the way it is run.

    Attributes
    ----------
    model : PreTrainedModel
        Shared by both lanes.
    prompt : Tensor
        (1, T) tokens.
    attached : callable
        A context in which the model is the method's.
    """

    model: Any
    prompt: Tensor
    attached: Callable[[], AbstractContextManager[Any]] = nullcontext
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
