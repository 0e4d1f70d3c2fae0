"""Makes ``load_dataset("ruleworld", ...)`` and ``evaluate.load("ruleworld_em")`` work without an import.

``ruleworld_data.pth`` imports this file when Python starts. Neither library lets a package announce a dataset
or a metric, so this waits until `datasets.load` or `evaluate.loading` is imported and then lets
`ruleworld_data.io.register` wrap their look-up functions. Until then it costs one entry in `sys.meta_path` and
imports nothing but `sys`.

Set the environment variable ``RULEWORLD_NO_HOOK=1`` to switch it off. Whatever goes wrong here ends in a
warning: Python starts and `datasets` imports as if this file were not there.
"""

import sys

TARGETS = ("datasets.load", "evaluate.loading")


class Finder:
    """A `sys.meta_path` entry that lets the other finders find, and adds one step after a target's import."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec of a target, its loader made to patch after the import; None for other modules."""
        if name not in TARGETS or switched_off():
            return None
        for finder in sys.meta_path:
            find = None if isinstance(finder, Finder) else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec:
                try:
                    _extend(spec.loader)
                except Exception as error:
                    _warn(name, error)
                return spec
        return None


def _extend(loader):
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        _patch(module)

    loader.exec_module = exec_module


def _patch(module):
    try:
        from ruleworld_data.io.register import patch

        patch(module)
    except Exception as error:
        _warn(module.__name__, error)


def _warn(name, error):
    import warnings

    warnings.warn(
        f"ruleworld-data could not add its names to {name} ({type(error).__name__}: {error}); "
        "import ruleworld_data to see why, or set RULEWORLD_NO_HOOK=1 to switch the hook off",
        RuntimeWarning,
        stacklevel=2,
    )


def switched_off():
    """Whether the user opted out."""
    import os

    return os.environ.get("RULEWORLD_NO_HOOK", "") not in ("", "0")


def install():
    """Put the finder first in `sys.meta_path`, once, and patch what is imported already."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    for name in TARGETS:
        if name in sys.modules and not switched_off():
            _patch(sys.modules[name])


install()
