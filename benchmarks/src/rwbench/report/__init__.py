"""Results as pages, figures and tables."""

from importlib import import_module
from typing import Any

_MODULES = {
    "browser": ("build_browser", "samples_path"),
    "figures": ("write_figure",),
    "packing": ("pack",),
    "page": ("asset", "render_page", "template_environment"),
    "setting": ("Setting", "macro", "settings"),
    "tables": ("csv_text", "latex_table", "markdown_table", "markdown_times", "percent", "print_report"),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
