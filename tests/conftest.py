"""Before any test imports datasets or evaluate: they read this once, and must not write to the user's cache."""

import os
import tempfile
from contextlib import suppress
from functools import lru_cache

import pytest

_HOME = tempfile.TemporaryDirectory(prefix="ruleworld-tests-")
os.environ["HF_HOME"] = _HOME.name
os.environ["HF_HUB_OFFLINE"] = "1"
# Two workers share two cores, and commands that tests start would each take both; set it to try other numbers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

with suppress(ImportError):  # the environment that a plug-in is tested in has none
    from hypothesis import HealthCheck, settings

    # A busy machine is slow, and no reason to fail.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

LONG = (
    "tests/contract/test_docs.py",
    "tests/data/verify/test_verify.py",
    "tests/benchmarks/cli/test_cli.py",
    "tests/benchmarks/leaderboard/test_readme_leaderboard.py",
    "tests/benchmarks/lab/",
)
"""Half a minute and more each, so begun first: the last minute of several workers is one of many small modules."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(scope="session")
def _tables():
    from ruleworld_data import generate

    return {
        name: lru_cache(maxsize=256)(getattr(generate, name).__wrapped__) for name in ("_block", "_chains")
    }


@pytest.fixture(scope="module")
def tables_at_hand(_tables):
    """Questions are a function of their names: those that a test has asked for are there for the next one.

    The package keeps two tables, of which one may hold 300,000 questions, and a command makes each but once.
    """
    from ruleworld_data import generate

    with pytest.MonkeyPatch.context() as patch:
        for name, made_once in _tables.items():
            patch.setattr(generate, name, made_once)
        yield [
            *_tables.values(),
            generate._world,
            generate._whole_world,
        ]  # worlds keep what was derived of them
