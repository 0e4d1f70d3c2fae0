"""DynaRule: the confidence layer reads the rules again at every ``<search>``."""

from __future__ import annotations

from ..backends.local import Local
from ..zoo.models import adapter_folder
from . import component
from .memory import Memory


@component
class DynaRule(Memory):
    """Rules in every layer; ``<search>`` between two steps replaces those of the confidence layer."""

    name = "dynarule"
    title = "DynaRule (paper)"
    stepwise = True

    @classmethod
    def choosing_layers(cls, model: Local, representation: str) -> list[int]:
        """Return the 0-based layers that choose rules; without an adapter layer 0, whose run says what is missing.

        A layer that reads what the confidence layer keeps has nothing of its own to compare.
        """
        from dynarule import DynaRuleConfig

        folder = adapter_folder(model.model, cls.name, representation)
        if folder is None:
            return [0]
        config = DynaRuleConfig.from_pretrained(folder)
        held = config.layers((config.base or {})["num_layers"])
        return [layer for layer in held if not config.shares(layer)]
