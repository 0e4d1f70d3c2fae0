"""Prompts as the rows of a batch, their tokens, batches that fit, and what an answer must not begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ruleworld_data.prompts import Prompt
    from torch import Tensor

BATCH_TOKENS = 1 << 17
"""Tokens of one forward at most, padding included: long prompts go in smaller parts, so memory stays in bounds."""
MARK = "["
"""What follows a line break while a text's tokens are told."""


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
