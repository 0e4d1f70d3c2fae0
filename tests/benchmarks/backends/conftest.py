"""What a model computes, counted."""

import functools

import pytest
from rwbench.backends.local import load


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
