"""Imports that wait for a first use (PEP 562), so that importing a package is cheap; those of tools; TOML files."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def attach(package: str, **modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package; modules -> names, separated by spaces."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)


@contextmanager
def tool(name: str, extra: str) -> Iterator[None]:
    """Import a tool within; where it is missing, the ImportError says what to type."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f'{name} is needed ({error}); type: pip install "ruleworld-data[{extra}]"'
        ) from error


def read_toml(package: str | None, name: str) -> dict[str, Any]:
    """Return what a TOML file of a package holds."""
    import tomllib  # here, as most of who imports this module reads none
    from importlib import resources

    return tomllib.loads(resources.files(str(package)).joinpath(name).read_text(encoding="utf-8"))
