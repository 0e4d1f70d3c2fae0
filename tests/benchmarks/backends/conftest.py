"""What a model computes, counted; what it remembers, forgotten."""

import functools

import pytest
from rwbench.backends import local
from rwbench.backends.local import load


def all_so_far(*_):
    local._ANSWERED.clear()
    local._kept_states.cache_clear()


@pytest.fixture(autouse=True)
def forget():
    """Answers and states of one test serve no other; called, it forgets those so far."""
    all_so_far()
    return all_so_far


@pytest.fixture
def forwards(monkeypatch):
    """A function: the shapes of the tokens of each forward of a model from now on, padding included."""

    def count(name):
        kind, shapes = type(load(name)[0]), []
        forward = kind.forward

        @functools.wraps(forward)
        def counted(self, input_ids=None, **options):
            shapes.append(tuple(input_ids.shape))
            return forward(self, input_ids=input_ids, **options)

        monkeypatch.setattr(kind, "forward", counted)
        return shapes

    return count
