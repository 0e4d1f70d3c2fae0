"""The only source of randomness: one stream per key.

A stream is a Philox counter generator keyed by a hash of its name, so ``Stream(0, "train", "multi_hop_3")`` and
``Stream(1, "train", "multi_hop_3")`` share nothing. (Seeding with ``seed + index`` makes neighbouring seeds share
almost every item.) Only Philox's raw 64-bit words are used: numpy promises those never change, and promises nothing
of the kind for its distributions.
"""

import hashlib
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

Key = str | int
Ints = NDArray[Any]
"""Integers of any width."""


class Stream:
    """A reproducible stream of integers named by a key.

    Parameters
    ----------
    *key : str or int
        The name of the stream. Different names give independent streams.
    """

    def __init__(self, *key: Key) -> None:
        # Lengths keep ("ab", "c") apart from ("a", "bc"); index() makes numpy integers the same name as Python's.
        parts = [part if isinstance(part, str) else index(part) for part in key]
        name = "".join(f"{type(part).__name__}:{len(str(part))}:{part}" for part in parts)
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        self._philox = np.random.Philox(key=int.from_bytes(digest, "little"))

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` uniform 64-bit words."""
        return self._philox.random_raw(size)

    def integers(self, high: int | NDArray[np.integer], size: int) -> NDArray[np.int64]:
        """Draw ``size`` integers in ``[0, high)``; ``high`` may give one bound per draw.

        The top 32 bits are scaled, which is unbiased to within ``high / 2**32``.
        """
        bound = np.asarray(high, dtype=np.uint64)
        return (((self.words(size) >> np.uint64(32)) * bound) >> np.uint64(32)).astype(np.int64)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Draw a uniform permutation of ``range(n)``."""
        return np.argsort(self.words(n), kind="stable")

    def subset(self, n: int, *counts: int) -> list[NDArray[np.int64]]:
        """Draw nested random subsets of ``range(n)`` of exactly the given sizes, each sorted.

        ``subset(n, 10, 100)`` gives ten members and a hundred members, the ten being among the hundred.
        """
        words = self.words(n)

        def smallest(count: int) -> NDArray[np.int64]:
            if not 0 < count < n:
                return np.arange(n if count else 0)
            return np.flatnonzero(words <= np.partition(words, count - 1)[count - 1])

        return [smallest(count) for count in counts]

    def distinct(self, n: int, count: int) -> NDArray[np.int64]:
        """Draw ``count`` different integers from ``range(n)`` in random order, for ``n`` up to 2**62.

        Raises
        ------
        ValueError
            If fewer than ``count`` integers exist.
        """
        if count > n:
            raise ValueError(f"cannot draw {count} different integers from range({n})")
        if n <= 4 * count + 1024:
            return self.permutation(n)[:count]
        # Numbers of as many bits as n has; those that are too large are dropped, which leaves no bias. At most a
        # quarter of the range is wanted, so each round keeps a good part of what it draws.
        shift = np.uint64(64 - n.bit_length())
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            fresh = (self.words(int((count - len(drawn)) * 2.2) + 16) >> shift).astype(np.int64)
            drawn = np.concatenate([drawn, fresh[fresh < n]])
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]  # each at its first occurrence
        return drawn[:count]


def keyed_integers(key: tuple[Key, ...], high: int, *columns: NDArray[np.integer] | int) -> NDArray[np.int64]:
    """Integers in ``[0, high)`` that are a fixed function of the key and of each row's columns."""
    salt = Stream(*key).words(1)
    return (((mix(salt, *columns) >> np.uint64(32)) * np.uint64(high)) >> np.uint64(32)).astype(np.int64)


def mix(*columns: NDArray[np.integer] | int) -> NDArray[np.uint64]:
    """Hash integer columns row by row to uniform 64-bit words (splitmix64 finaliser per column)."""
    with np.errstate(over="ignore"):
        state: NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
        for column in columns:
            state = state + np.asarray(column).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return state
