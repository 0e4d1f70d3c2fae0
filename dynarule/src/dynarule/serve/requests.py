"""One answer that is asked for, and the rows of a batch, followed token by token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..decoding import RunningText
from ..generation import Generation
from ..memory.serving import Retrieval, one_a_step
from ..tokenizer import Prompt, control_tokens


@dataclass(frozen=True)
class Answer:
    """A finished answer: its text, why it ended ("stop" or "length"), tokens read and written, and what was read."""

    text: str
    finish: str
    prompt_tokens: int
    tokens: int
    trace: tuple[Retrieval, ...]


@dataclass
class Request:
    """One answer that is asked for.

    Attributes
    ----------
    book : str
        Name of the book.
    prompt : Prompt
        As for `dynarule.generate`.
    emit : callable
        Called from the engine's thread with each new piece of text, and in the end with an `Answer` or an exception.
    max_tokens : int
        Most tokens of the answer.
    temperature, top_p : float
        0 is greedy.
    seed : int or None
        With a seed, the answer is sampled alone: a batch would share its random numbers.
    stop : tuple of str
        Where the answer ends, these words left out.
    """

    book: str
    prompt: Prompt
    emit: Callable[[str | Answer | Exception], object]
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    cancelled: bool = field(default=False, init=False)
    prompt_tokens: int = field(default=0, init=False)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Requests of one kind are answered in one batch."""
        return self.book, self.temperature, self.top_p if self.temperature else 1.0


class BatchWatch:
    """Follows the rows of a batch token by token: passes new text on, and ends a row at its stop words or length."""

    def __init__(self, tokenizer: Any, batch: Sequence[Request], by_line: bool = False) -> None:
        self.batch, self.by_line = batch, by_line
        hidden = control_tokens(tokenizer)
        self.said = [RunningText(tokenizer, hidden) for _ in batch]
        self.sent = [""] * len(batch)
        self.texts = [""] * len(batch)
        self.ended = [""] * len(batch)
        self.count = 0  # tokens of each answer that has not ended

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Say which rows have ended (a stopping criterion), after each new token."""
        self.count += 1
        for row, token in enumerate(input_ids[:, -1].tolist()):
            if self.ended[row]:
                continue
            request, text = self.batch[row], self.said[row].add(token)
            cut = min((at for word in request.stop if (at := text.find(word)) >= 0), default=None)
            if request.cancelled or cut is not None:
                self.ended[row] = "stop"
            elif self.count >= request.max_tokens:
                self.ended[row] = "length"
            self.texts[row] = text[:cut]
            # what may be the beginning of a stop word, or of a character, waits
            begun = (n for word in request.stop for n in range(1, len(word)) if text.endswith(word[:n]))
            ready = text[: len(text) - max(begun, default=0)].rstrip("\ufffd")
            ready = self.texts[row] if self.ended[row] else ready
            # a step that no rule supports is not begun
            self._send(row, ready[: ready.rfind("\n") + 1] if self.by_line else ready)
        return torch.tensor([bool(ended) for ended in self.ended], device=input_ids.device)

    def _send(self, row: int, text: str) -> None:
        if text.startswith(self.sent[row]) and len(text) > len(self.sent[row]):
            self.batch[row].emit(text[len(self.sent[row]) :])
            self.sent[row] = text

    def finish(self, row: int, answer: Generation, layer: int | None) -> None:
        """Pass on what is left of a row, and its answer, with what its searches at a layer read."""
        request = self.batch[row]
        text = self.texts[row] if self.ended[row] else answer.text
        self._send(row, text)
        count = min(len(answer.token_ids), request.max_tokens)
        trace = tuple(search for search in one_a_step(answer.trace) if search.layer == layer)
        request.emit(Answer(text, self.ended[row] or "stop", request.prompt_tokens, count, trace))
