"""Keys and values of what was read and written before: prompts with the same beginning go on from there."""

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


LEAST_SHARED = 32
"""Tokens that are worth reading apart."""
NEARLY_ALL = 0.8
"""Part of a common beginning that suffices where it is at hand."""


class Text(NamedTuple):
    """Tokens of one text, and in each layer their keys and values, (G, T, D) each."""

    ids: list[int]
    layers: Layers


class KeptStates:
    """Keys and values of what the prompts of a batch begin with, and of conversations from one line to the next.

    A prompt goes on from the text with which it has the longest beginning in common; what was tokenized
    in another way is read anew from there. Of conversations no more than `BATCH_TOKENS` are held, and nothing of models
    with a sliding window, which let go of what is far behind.
    """

    def __init__(self) -> None:
        self._shared: list[Text] = []
        self._latest: list[Text] = []
        self._next: list[Text] = []

    def fill(self, model: Any, cache: Any, rows: Sequence[Row], conversations: bool) -> list[int]:
        """Fill an empty cache with the known beginning of each prompt, aligned right; return their lengths.

        At least one token of each is left to be read. Lines of conversations count where the rows are such; if no
        answer has begun, a new batch has, and what there was is let go.
        """
        if conversations and not any(row.begun for row in rows):
            self._latest = []
        latest = self._latest if conversations else []
        self._share(model, rows, latest)
        texts = self._shared + latest
        found = [
            max(((_common(text.ids, row.ids[:-1]), at) for at, text in enumerate(texts)), default=(0, 0))
            for row in rows
        ]
        most = max(length for length, _ in found)
        for number, sides in enumerate(texts[0].layers if most else ()):
            rooms = [side.new_zeros(len(rows), side.shape[0], most, side.shape[2]) for side in sides]
            for row, (length, at) in enumerate(found):
                for room, side in zip(rooms, texts[at].layers[number], strict=True):
                    room[row, :, most - length :] = side[:, :length]
            cache.update(*rooms, number)
        used = {id(texts[at]) for length, at in found if length}
        self._latest = [text for text in self._latest if id(text) not in used]
        return [length for length, _ in found]

    def _share(self, model: Any, rows: Sequence[Row], others: Sequence[Text]) -> None:
        """Read once what all prompts of a batch begin with, such as the rules of a pool, unless it is at hand."""
        import torch

        from dynarule import growing_cache

        columns = takewhile(
            lambda tokens: len({*tokens}) == 1, zip(*(row.ids[:-1] for row in rows), strict=False)
        )
        common: list[int] = [token for token, *_ in columns]
        cache: Any = growing_cache(model)
        known = max((_common(text.ids, common) for text in (*self._shared, *others)), default=0)
        if len(common) < LEAST_SHARED or known >= NEARLY_ALL * len(common) or any(cache.is_sliding):
            return
        ids_1T = torch.tensor([common], device=model.device)
        with torch.no_grad():
            model(ids_1T, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self._shared = [Text(common, [(layer.keys[0], layer.values[0]) for layer in cache.layers])]

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


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def release_memory() -> None:
    """Return freed memory to the system where the allocator (glibc) keeps it.

    Caches of all lengths leave gaps of all sizes behind; over thousands of prompts they became seven gigabytes.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
