"""Streams: their words never change, and different keys name different ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.world import Stream, mix

# The first words of three streams. Every benchmark ever built depends on them: they never change.
GOLDEN = {
    ("golden",): ["0x86a6071bc32a4ccb", "0xda81f4cc3cd10c8e", "0xa44fa3c2217ef253"],
    ("golden", 0, "train"): ["0x94d058677dd7d8ab", "0xe19e0509b882fd26", "0xc84c30bf9c8603d0"],
    (): ["0xef18a3b007c162e6", "0x9924bec93d39b07a", "0xeb96914800d46ffa"],
}


@pytest.mark.parametrize("key", GOLDEN, ids=str)
def test_first_words_never_change(key):
    assert [hex(word) for word in Stream(*key).words(3)] == GOLDEN[key]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        (("a",), ("a", "")),
        ((0, "x"), ("x", 0)),
        ((-1,), (1,)),
        (("a", "b"), ("a\x1fstr:b",)),
    ],
)
def test_different_keys_give_different_streams(one, other):
    assert Stream(*one).words(4).tolist() != Stream(*other).words(4).tolist()


def splitmix(*values: int) -> int:
    """The finaliser of splitmix64, column by column, in Python's integers."""
    mask, state = 2**64 - 1, 0
    for value in values:
        state = (state + value + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 30_000)), min_size=1, max_size=20))
def test_mix_is_a_function_of_each_row(pairs):
    wide, narrow = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], dtype=np.int16)
    assert mix(7, wide, narrow).tolist() == [splitmix(7, *pair) for pair in pairs]
