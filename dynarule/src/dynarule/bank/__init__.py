"""Rules as embeddings: encoders, the bank that holds them, its files, and exact or indexed search."""

from importlib import import_module
from typing import Any

_NAMES = {"EmbeddingCache": "embedding_cache", "premise_of": "sources"}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
