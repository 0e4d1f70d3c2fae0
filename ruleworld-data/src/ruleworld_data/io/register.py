"""Make the names ``ruleworld`` and ``ruleworld_em`` known to `datasets` and `evaluate`.

Both libraries resolve a name to files or to a Hub repository and offer no registration. So their look-up
functions are wrapped: one of our names gives our module, anything else goes to the original. ``data_files``,
``data_dir``, ``revision`` or, for `datasets`, a folder of that name in the working directory mean something else than
the generator, and win. A metric is code: a script of that name in a folder that happens to be the working directory is
run only if it is asked for by its path, ``./ruleworld_em``.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

NAMES = {"ruleworld": "ruleworld_data.io.builder"}
METRICS = {
    "ruleworld_em": Path(__file__).parents[1] / "scoring" / "metric" / "ruleworld_em" / "ruleworld_em.py"
}
_MARK = "_ruleworld"
# Modules that hold a second reference to the function they imported from the patched module.
_COPIES = {
    "datasets.load": ("datasets.inspect", "datasets.commands.test"),
    "evaluate.loading": ("evaluate.inspect", "evaluate.evaluation_suite"),
}


def activate() -> None:
    """Make the names known in this process, now or when the libraries are imported.

    Importing `ruleworld_data` calls this, for environments that do not read the ``.pth`` file of an installed
    package (``python -S``, PYTHONPATH). It does nothing if ``RULEWORLD_NO_HOOK`` is set.
    """
    try:
        import _ruleworld_hook as hook
    except (
        ImportError
    ):  # only the package folder was copied: names then work once this runs after the libraries
        switched_off = False
    else:
        switched_off = hook.switched_off()
        hook.install()
    if not switched_off:
        for name in _COPIES:
            module = sys.modules.get(name)
            # Half-imported modules have no look-up function yet; the hook patches them when they are
            # complete.
            if module is not None and hasattr(module, _LOOKUPS[name][0]):
                patch(module)


def patch(module: ModuleType) -> None:
    """Wrap the look-up function of `datasets.load` or `evaluate.loading`; a second call changes nothing.

    Raises
    ------
    RuntimeError
        If the module has no such function, as in a release of the library that is not supported.
    """
    attribute, wrap = _LOOKUPS[module.__name__]
    original = getattr(module, attribute, None)
    if original is None:
        raise RuntimeError(f"{module.__name__} has no function {attribute}; this release is not supported")
    if getattr(original, _MARK, False):
        return
    wrapped = wrap(module, original)
    setattr(wrapped, _MARK, True)
    setattr(module, attribute, wrapped)
    for name in _COPIES[module.__name__]:
        copy = sys.modules.get(name)
        if copy is not None and getattr(copy, attribute, None) is original:
            setattr(copy, attribute, wrapped)


def _wrap_datasets(load: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dataset_module_factory(path: str, *args: Any, **kwargs: Any) -> Any:
        elsewhere = args or any(kwargs.get(name) for name in ("data_files", "data_dir", "revision"))
        if isinstance(path, str) and path in NAMES and not elsewhere and not Path(path).is_dir():
            return load.DatasetModule(NAMES[path], module_hash(), {"dataset_name": path})
        return original(path, *args, **kwargs)

    return dataset_module_factory


def _wrap_evaluate(loading: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluation_module_factory(path: str, *args: Any, **kwargs: Any) -> Any:
        ours = isinstance(path, str) and path in METRICS and not kwargs.get("revision")
        if ours:
            path = str(METRICS[path])
        return original(path, *args, **kwargs)

    return evaluation_module_factory


_LOOKUPS: dict[str, tuple[str, Callable[[ModuleType, Callable[..., Any]], Callable[..., Any]]]] = {
    "datasets.load": ("dataset_module_factory", _wrap_datasets),
    "evaluate.loading": ("evaluation_module_factory", _wrap_evaluate),
}


@functools.cache
def module_hash() -> str:
    """Return the part of the cache path that changes with the generator.

    The generator version, and a digest of every file of the package, vocabularies included: data made by
    other code is never served from the cache.
    """
    from ruleworld_data import GENERATOR_VERSION

    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(package).as_posix()}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return f"{GENERATOR_VERSION}-{digest.hexdigest()[:16]}"
