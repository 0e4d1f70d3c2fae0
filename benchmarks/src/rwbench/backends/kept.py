"""Keys and values of what conversations have read and written: their next lines go on from there."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from .rows import BATCH_TOKENS, Row

if TYPE_CHECKING:
    from torch import Tensor

    Layers = list[tuple[Tensor, Tensor]]


class Text(NamedTuple):
    """Tokens of one conversation, and in each layer their keys and values, (G, T, D) each."""

    ids: list[int]
    layers: Layers


class KeptStates:
    """Keys and values of a batch of conversations, from one of its lines to the next.

    A prompt goes on from the text with which it has the longest beginning in common; what was tokenized
    in another way is read anew from there. No more than `BATCH_TOKENS` are held, and nothing of models with a sliding
    window, which let go of what is far behind.
    """

    def __init__(self) -> None:
        self._latest: list[Text] = []
        self._next: list[Text] = []

    def fill(self, cache: Any, rows: Sequence[Row]) -> list[int]:
        """Fill an empty cache with the known beginning of each prompt, aligned right; return their lengths.

        At least one token of each is left to be read. Nothing is returned if none is known; if no answer has begun, a
        new batch has, and what there was is let go.
        """
        if not any(row.begun for row in rows):
            self._latest = []
        found = [
            max(((_common(text, row), at) for at, text in enumerate(self._latest)), default=(0, 0))
            for row in rows
        ]
        most = max(length for length, _ in found)
        if not most:
            return []
        for number, sides in enumerate(self._latest[0].layers):
            rooms = [side.new_zeros(len(rows), side.shape[0], most, side.shape[2]) for side in sides]
            for row, (length, at) in enumerate(found):
                for room, side in zip(rooms, self._latest[at].layers[number], strict=True):
                    room[row, :, most - length :] = side[:, :length]
            cache.update(*rooms, number)
        used = {at for length, at in found if length}
        self._latest = [text for at, text in enumerate(self._latest) if at not in used]
        return [length for length, _ in found]

    def keep(self, cache: Any, at: int, ids_T: Tensor, mask_T: Tensor) -> None:
        """Keep a row's tokens of which a cache has keys and values, without what the mask leaves out."""
        places = mask_T[: cache.get_seq_length()].nonzero()[:, 0]
        held = sum(len(text.ids) for text in self._next)
        if any(cache.is_sliding) or held + len(places) > BATCH_TOKENS:
            return
        layers = [(layer.keys[at][:, places], layer.values[at][:, places]) for layer in cache.layers]
        self._next.append(Text(ids_T[places].tolist(), layers))

    def turn(self) -> None:
        """End a line of all conversations: what was kept since the last one is what they go on from."""
        self._latest, self._next = self._next, []


def _common(text: Text, row: Row) -> int:
    pairs = zip(text.ids, row.ids[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def release_memory() -> None:
    """Return freed memory to the system where the allocator (glibc) keeps it.

    Caches of all lengths leave gaps of all sizes behind; over thousands of prompts they became seven gigabytes.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
