"""What is imported at its first use: public names of a package (PEP 562), and packages of an extra."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, **modules: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package; modules -> names, separated by spaces."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    own = sorted({*homes, *(name for name in vars(sys.modules[package]) if name == "__version__")})
    return get, lambda: own, own


def need(module: str, extra: str) -> Any:
    """Import a module that an extra installs; where it is missing, the ImportError says what to type."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{module} is not installed ({error}): pip install "dynarule[{extra}]"', name=error.name
        ) from error
