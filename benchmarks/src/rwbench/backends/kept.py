"""What conversations have read and written, kept as keys and values: their next lines go on from there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from .rows import Row

if TYPE_CHECKING:
    from torch import Tensor

    Layers = list[tuple[Tensor, Tensor]]


class Text(NamedTuple):
    """Tokens of one conversation, and in each layer their keys and values, (G, T, D) each."""

    ids: list[int]
    layers: Layers


class KeptStates:
    """Keys and values of the latest batch of conversations.

    A prompt goes on from the text with which it has the longest beginning in common, whoever's that is; where the two
    are tokenized in different ways, it is read anew from there. Only the latest batch is held.
    """

    def __init__(self) -> None:
        self._latest: list[Text] = []
        self._next: list[Text] = []

    def fill(self, cache: Any, rows: Sequence[Row]) -> list[int]:
        """Put what is known of some prompts into an empty cache, to the right; return how many tokens that is of each.

        At least one token is left to be read of each. Nothing is filled in, and nothing returned, if none is known.
        """
        found = [
            max((_common(text, row), at) for at, text in enumerate(self._latest))
            for row in rows
            if self._latest
        ]
        lengths = [length for length, _ in found]
        most = max(lengths, default=0)
        if not most:
            return []
        for number, sides in enumerate(self._latest[0].layers):
            rooms = [side.new_zeros(len(rows), side.shape[0], most, side.shape[2]) for side in sides]
            for row, (length, at) in enumerate(found):
                for room, side in zip(rooms, self._latest[at].layers[number], strict=True):
                    room[row, :, most - length :] = side[:, :length]
            cache.update(*rooms, number)
        return lengths

    def keep(self, cache: Any, at: int, ids_T: Tensor, mask_T: Tensor) -> None:
        """Keep a row's tokens of which a cache has keys and values, without what the mask leaves out."""
        if any(cache.is_sliding):  # such a layer lets go of what is far behind
            return
        places = mask_T[: cache.get_seq_length()].nonzero()[:, 0]
        layers = [(layer.keys[at][:, places], layer.values[at][:, places]) for layer in cache.layers]
        self._next.append(Text(ids_T[places].tolist(), layers))

    def turn(self) -> None:
        """Let go of the batch before; the one that was kept since is the latest."""
        self._latest, self._next = self._next, []


def _common(text: Text, row: Row) -> int:
    pairs = zip(text.ids, row.ids[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
