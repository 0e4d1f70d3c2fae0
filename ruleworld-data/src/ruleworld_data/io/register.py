"""Make the names ``ruleworld`` and ``ruleworld_em`` known to `datasets` and `evaluate`.

Both libraries resolve a name to files or to a Hub repository and offer no registration. So their look-up
functions are wrapped: one of our names gives our module, anything else goes to the original. ``data_files``,
``data_dir`` or, for `datasets`, data in a folder of that name in the working directory mean something
else than the generator, and win. A metric is code: a script of that name in a folder that happens to be the working
directory is run only if it is asked for by its path, ``./ruleworld_em``.
"""

import functools
import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

DATASET = "ruleworld"
BUILDER = "ruleworld_data.io.builder"
METRIC = "ruleworld_em"
METRIC_SCRIPT = Path(__file__).parents[1] / "scoring" / "metric" / METRIC / f"{METRIC}.py"
_MARK, _LOADS = "_ruleworld", ("load_dataset_builder", "load_dataset")
# Module -> its look-up function, and modules that hold a second reference to it.
_LOOKUPS = {
    "datasets.load": ("dataset_module_factory", ("datasets.inspect", "datasets.commands.test")),
    "evaluate.loading": ("evaluation_module_factory", ("evaluate.inspect", "evaluate.evaluation_suite")),
}


def patch(module: ModuleType) -> None:
    """Wrap the look-up function of `datasets.load` or `evaluate.loading`; a second call changes nothing.

    A RuntimeError if the module has no such function, as in a release of the library that is not supported.
    """
    attribute, copies = _LOOKUPS[module.__name__]
    original = getattr(module, attribute, None)
    if original is None:
        raise RuntimeError(f"{module.__name__} has no function {attribute}; this release is not supported")
    if getattr(original, _MARK, False):
        return
    wrap = _wrap_datasets if module.__name__ == "datasets.load" else _wrap_evaluate
    wrapped = functools.wraps(original)(wrap(module, original))
    setattr(wrapped, _MARK, True)
    for holder in (module, *map(sys.modules.get, copies)):
        if getattr(holder, attribute, None) is original:
            setattr(holder, attribute, wrapped)
    for load in filter(None, (getattr(module, name, None) for name in _LOADS)):
        setattr(module, load.__name__, functools.wraps(load)(_wrap_load(load)))


def _wrap_datasets(load: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    def dataset_module_factory(path: str, *args: Any, **kwargs: Any) -> Any:
        revision = kwargs.get("revision")
        if path == DATASET and revision:  # data of the cache would be taken for it
            raise ValueError(f"{DATASET} has no revision, got {revision!r}; give version='1.2'")
        elsewhere = args or kwargs.get("data_files") or kwargs.get("data_dir")
        if path != DATASET or elsewhere:
            return original(path, *args, **kwargs)
        if not Path(path).is_dir():
            return load.DatasetModule(BUILDER, module_hash(), {"dataset_name": path})
        try:
            return original(path, *args, **kwargs)
        except (ValueError, OSError, RuntimeError) as error:  # the last of a script
            raise _in_the_way(f"it holds no dataset ({error})") from None

    return dataset_module_factory


def _wrap_load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(path, *args, **kwargs)
        except ValueError as error:  # a configuration, an option or a split that is not there
            if path == DATASET and Path(path).is_dir() and str(error).startswith("BuilderConfig"):
                raise _in_the_way(f"it is not the generator's ({error})") from None
            if path == DATASET and re.match("(Unknown|Bad) split.*unseen", str(error)):
                raise ValueError(f"{error} Questions have it from data 1.2 on: version='1.2'.") from None
            raise

    return load


def _in_the_way(what: str) -> ValueError:
    return ValueError(
        f"{Path(DATASET).absolute()} is a folder of the working directory, so it is read in place of the generator, "
        f"and {what}; work in another directory, or rename the folder"
    )


def _wrap_evaluate(loading: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    def evaluation_module_factory(path: str, *args: Any, **kwargs: Any) -> Any:
        ours = path == METRIC and not kwargs.get("revision")
        return original(str(METRIC_SCRIPT) if ours else path, *args, **kwargs)

    return evaluation_module_factory


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
