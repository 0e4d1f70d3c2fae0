"""The engine of a server: one thread that owns the model, answers waiting requests in batches and changes rules."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import torch

from ..generation import generate, rule_memory
from ..tokenizer import encode_prompt
from .book import Book
from .requests import BatchWatch, Request

MOST_WAITING = 1024
REJOIN_SHARE, REJOIN_SECONDS = 0.1, 0.1
"""How long the next batch waits for as many as were answered or waited: share of the last one's time, and at most."""


class EngineClosed(RuntimeError):
    """What is asked of an engine that is closed, or waited when it was."""

    def __init__(self) -> None:
        super().__init__("the server is closing; ask again when it has started anew")


class Engine:
    """Answers requests one batch after another; `close` it in the end.

    Parameters
    ----------
    model, tokenizer
        A model with its adapter.
    books : sequence of Book
        What may be asked.
    batch_size : int
        Most answers at once.
    most_tokens : int
        Most tokens of an answer, whatever a request asks for.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        books: Sequence[Book],
        *,
        batch_size: int = 16,
        most_tokens: int = 1024,
    ) -> None:
        self.model, self.tokenizer, self.most_tokens = model, tokenizer, most_tokens
        self.books, self.batch_size = {book.name: book for book in books}, batch_size
        self.config = model.active_peft_config
        self._memories = {name: rule_memory(model, tokenizer, book.bank) for name, book in self.books.items()}
        self._waiting: deque[Request] = deque()
        self._wake = threading.Condition()
        self._closed = self._has_turn = False  # whether a turn is under way, or queued
        self._expected, self._until = 1, 0.0  # how many the next batch waits for, and how long
        self._thread = ThreadPoolExecutor(1, "dynarule-engine")

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn; its answer has no more tokens than the model has places for.

        A ValueError for a prompt that leaves no place, here and not in the batch that it would be answered in; an
        OverflowError if too many wait already, or `EngineClosed`.
        """
        request.prompt_tokens = count = len(encode_prompt(self.tokenizer, request.prompt))
        longest = getattr(self.model.config, "max_position_embeddings", None) or 1 << 30
        if count >= longest:
            raise ValueError(
                f"{count:,} tokens of prompt: the model reads {longest:,} at most, answer included"
            )
        request.max_tokens = min(request.max_tokens, self.most_tokens, longest - count)
        with self._wake:
            if self._closed:
                raise EngineClosed
            self._waiting = deque(waiting for waiting in self._waiting if not waiting.cancelled)
            if len(self._waiting) >= MOST_WAITING:
                raise OverflowError(f"{len(self._waiting)} requests wait already; try again later")
            self._waiting.append(request)
            self._wake.notify()
            self._queue_turn()

    def run(self, job: Callable[[], Any]) -> Any:
        """Run something between two batches, such as a change of rules, and return what it returns, or raise."""
        with self._wake:
            if self._closed:
                raise EngineClosed
            result = self._thread.submit(job)
        try:
            return result.result()
        except CancelledError:
            raise EngineClosed from None

    def close(self) -> None:
        """Finish the batch that is being answered, and end; who waits gets `EngineClosed`."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.shutdown(cancel_futures=True)
        while self._waiting:
            if not (request := self._waiting.popleft()).cancelled:
                request.emit(EngineClosed())

    def _queue_turn(self) -> None:
        """Have whoever waits answered, behind the jobs that are queued: a turn is one batch, and queues the next."""
        if self._waiting and not self._has_turn and not self._closed:
            self._has_turn = True
            self._thread.submit(self._turn)

    def _turn(self) -> None:
        def enough() -> bool:
            return len(self._waiting) >= self._expected or self._closed

        with self._wake:
            # who was answered together asks again at once, but not in the same moment
            self._wake.wait_for(enough, max(0.0, self._until - time.monotonic()))
            batch = [] if self._closed else self._next_batch()
        begun = time.monotonic()
        try:
            if batch:
                self._answer(batch)
        finally:  # whatever becomes of a batch, the next one has its turn
            self._expected, end = min(len(batch) + len(self._waiting), self.batch_size), time.monotonic()
            self._until = end + min(REJOIN_SHARE * (end - begun), REJOIN_SECONDS)
            with self._wake:
                self._has_turn = False
                self._queue_turn()

    def _next_batch(self) -> list[Request]:
        """Take the request that waited longest, and others that can be answered with it."""
        first = self._waiting.popleft()
        batch, left = [first], deque[Request]()
        while self._waiting:
            other = self._waiting.popleft()
            alone = first.seed is not None or other.seed is not None
            fits = not alone and other.kind == first.kind and len(batch) < self.batch_size
            (batch if fits else left).append(other)
        self._waiting = left
        return [request for request in batch if not request.cancelled]

    def _answer(self, batch: list[Request]) -> None:
        first = batch[0]
        try:
            if first.seed is not None:
                torch.manual_seed(first.seed)
            memory = self._memories[first.book]
            watch = BatchWatch(self.tokenizer, batch, by_line=memory.config.min_support > 0)
            sampling: dict[str, Any] = {"temperature": first.temperature, "top_p": first.top_p}
            answers = generate(
                self.model,
                self.tokenizer,
                memory,
                [request.prompt for request in batch],
                max_new_tokens=max(request.max_tokens for request in batch),
                batch_size=len(batch),
                do_sample=first.temperature > 0,
                stopping_criteria=[watch],
                **(sampling if first.temperature > 0 else {}),
            )
            for row, answer in enumerate(answers):
                watch.finish(row, answer, self.config.confidence_layer)
        except Exception as error:  # one request must not end the server
            logging.getLogger(__name__).exception("a batch was not answered")
            for request in batch:
                request.emit(error)
