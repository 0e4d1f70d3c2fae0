"""Prompts as the rows of a batch, their tokens, batches that fit, and what an answer must not begin with.

Keys and values of what was read and written before are kept: prompts with the same beginning go on from there.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ruleworld_data.prompts import Prompt
    from torch import Tensor

    Layers = list[tuple[Tensor, Tensor]]

BATCH_TOKENS = 1 << 17
"""Tokens of one forward at most, padding included: long prompts go in smaller parts, so memory stays in bounds."""
MARK = "["
"""What follows a line break while a text's tokens are told."""
LEAST_SHARED = 32
"""Tokens that are worth reading apart."""
NEARLY_ALL = 0.8
"""Part of a common beginning that suffices where it is at hand."""


class Row(NamedTuple):
    """A prompt's tokens, and whether the answer's beginning is among them."""

    ids: list[int]
    begun: bool


def parts_of(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Split a batch so that no part has more than `BATCH_TOKENS`; by lengths alone, so the same every time."""
    part: list[Row] = []
    for row in rows:
        longest = max(len(each.ids) for each in [*part, row])
        if part and longest * (len(part) + 1) > BATCH_TOKENS:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def encoded(tokenizer: Any, text: str, special: bool) -> list[int]:
    """Return the tokens of a text that goes on; if it ends with a line break, those that it has before a line.

    SmolLM2's tokenizer, as GPT-2's, takes two line breaks at the end of a text for one token, and for two where a line
    follows, which is all that the model has read.
    """
    from dynarule.tokenizer import encode_marked

    ids = encode_marked(tokenizer, text, special)
    if not text.endswith("\n"):
        return ids
    *longer, last = encode_marked(tokenizer, text + MARK, special)
    return longer if tokenizer.decode([last]) == MARK else ids


def marked(tokenizer: Any, prompt: Prompt) -> str:
    """Return a prompt's text, with marks where what was filled into the template spells control tokens."""
    from dynarule.tokenizer import as_text

    parts = prompt.parts if "".join(prompt.parts) == prompt.text else ("", prompt.text)
    return "".join(as_text(tokenizer, part) if at % 2 else part for at, part in enumerate(parts))


def as_written(tokenizer: Any, tokens: list[int], text: str) -> str:
    """Return the text of an answer with its control tokens, and with marks where other tokens spell one."""
    from dynarule.tokenizer import as_text, markup_tokens

    decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
    if as_text(tokenizer, text) == text:
        return decode(tokens)
    control = markup_tokens(tokenizer)
    runs = ((own, decode([*run])) for own, run in groupby(tokens, control.__contains__))
    return "".join(run if own else as_text(tokenizer, run) for own, run in runs)


class NoRequest:
    """Forbid a request's first token as the first of an answer (a logits processor, for one call of ``generate``).

    A model that asks and is not answered mostly asks again to the end of its answer. Forbidden to, it writes what comes
    second: a step, or the same in other tokens, which SmolLM2 does where it has no rule at all. Where rules are in its
    memory and not in sight, it begins its first step instead, with the token ``instead``. Greedy answers that open with
    anything else stay as they are. Later lines are free, since they may begin with that token: on SmolLM2 the line of
    the answer does. ``request`` is how such a line begins; ``rows`` are those of the batch whose answer begins.
    """

    def __init__(
        self, request: str, tokenizer: Any, rows: Sequence[int] | None = None, instead: str | None = None
    ) -> None:
        self.first: int = tokenizer(request, add_special_tokens=False)["input_ids"][0]
        self.rows = slice(None) if rows is None else list(rows)
        self.instead: int | None = tokenizer.get_vocab().get(instead)
        self.begun = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B, V) of the next token."""
        if not self.begun:
            opening_BV = scores[self.rows]
            asks_B = opening_BV.argmax(-1) == self.first
            opening_BV[:, self.first] = -float("inf")
            if self.instead is not None:
                opening_BV[asks_B, self.instead] = opening_BV.amax() + 1
            scores[self.rows] = opening_BV
        self.begun = True
        return scores


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

        same = takewhile(lambda ids: len({*ids}) == 1, zip(*(row.ids[:-1] for row in rows), strict=False))
        common: list[int] = [token for token, *_ in same]
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
