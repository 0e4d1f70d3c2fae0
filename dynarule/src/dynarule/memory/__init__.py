"""Which rules a text sees and when: selection and visibility, the ``<search>`` token, and the hooks that attach it."""

from importlib import import_module
from typing import Any

_NAMES = {"SEARCH_TOKEN": "search", "search_rows": "search", "set_search_rows": "search"}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
