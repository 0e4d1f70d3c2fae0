"""KBLaM: layers attend to all rules, with no selection (Wang et al. 2025); which layers, the adapter says."""

from __future__ import annotations

from typing import Any

from ..backends.local import Local
from ..zoo.models import adapter_folder
from . import component
from .memory import Memory


@component
class KBLaM(Memory):
    """Rules as keys and values, all of them attended to; the paper has them in every third layer.

    Attributes
    ----------
    length_shift : float or None
        C: rule scores get log C - log M added, which keeps M rules from drowning the text. None: as in training.
    """

    name = "kblam"
    title = "KBLaM"

    length_shift: Any = None

    @property
    def label(self) -> str:
        """Name in reports."""
        shift = "" if self.length_shift is None else f", length shift {self.length_shift:g}"
        return super().label + shift

    @property
    def changes(self) -> dict[str, Any]:
        """The length shift, where it is given."""
        return {} if self.length_shift is None else {"length_shift": float(self.length_shift)}

    @classmethod
    def of(cls, model: Local, representation: str, **changes: Any) -> KBLaM:
        """Return the method on a model; retrieval is read where DynaRule's confidence layer is, or just before it.

        KBLaM has no confidence layer of its own, and the paper compares all methods at that layer. Where no layer
        before it holds rules, it is the first that does.
        """
        keys = cls(model=model, **changes).adapter_key, "dynarule"
        own, other = (adapter_folder(model.model, key, representation) for key in keys)
        if own is not None and other is not None and "trace_layer" not in changes:
            from dynarule import DynaRuleConfig

            layer = DynaRuleConfig.from_pretrained(other).confidence_layer
            config = DynaRuleConfig.from_pretrained(own)
            first, every = config.first_layer, config.every
            changes["trace_layer"] = None if layer is None else max(first, layer - (layer - first) % every)
        return super().of(model, representation, **changes)
