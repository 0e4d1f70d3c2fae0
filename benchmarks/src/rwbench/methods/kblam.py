"""KBLaM: every third layer attends to all rules, with no selection (Wang et al. 2025)."""

from __future__ import annotations

from typing import Any

from ..backends.local import Local
from ..models import adapter_folder
from . import component
from .memory import Memory


@component
class KBLaM(Memory):
    """Rules as keys and values of every third layer, all of them attended to."""

    name = "kblam"
    title = "KBLaM"

    @classmethod
    def of(cls, model: Local, representation: str, **changes: Any) -> KBLaM:
        """Return the method on a model; retrieval is read where DynaRule's confidence layer is, or just before it.

        KBLaM has no confidence layer of its own, and the paper compares all methods at that layer.
        """
        own, other = (adapter_folder(model.model, name, representation) for name in (cls.name, "dynarule"))
        if own is not None and other is not None and "trace_layer" not in changes:
            from dynarule.adapter_info import read_adapter_info

            layer = read_adapter_info(other).memory.confidence_layer
            every = read_adapter_info(own).memory.every
            changes["trace_layer"] = None if layer is None else layer - layer % every
        return super().of(model, representation, **changes)
