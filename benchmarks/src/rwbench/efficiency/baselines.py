"""The baseline without retrieval: every rule's key and value, projected once and kept, attended in every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynarule.attention import AttendedRules

if TYPE_CHECKING:
    from dynarule.projection import RuleAdapter
    from torch import Tensor, nn


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
