"""DynaRule: rules as key/value memory inside a frozen language model.

A bank holds rules as embeddings; an adapter projects them into a model's attention; a memory decides which
rules a text sees, and ``<search>`` makes it look again. Names are imported when first used, so that ``import dynarule``
costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_NAMES = {
    "DynaRuleConfig": "config",
    "dynarule_config": "config",
    "kblam_config": "config",
    "srki_config": "config",
    "RuleAdapter": "adapter",
    "RuleBank": "bank.bank",
    "RuleMemory": "memory.serving",
    "attach": "memory.hooks",
    "prepare_search": "memory.search",
    "Generation": "generation",
    "open_encoder": "bank.encoder_choice",
    "encoder_of": "bank.encoder_choice",
    "generate": "generation",
    "question_prompts": "generation",
    "load_tokenizer": "tokenizer",
    "measure_confidence": "memory.confidence",
    "measure_retention": "memory.confidence",
}
__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
