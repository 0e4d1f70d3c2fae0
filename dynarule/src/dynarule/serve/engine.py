"""The engine of a server: one thread that owns the model, answers waiting requests in batches and changes rules."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..bank.bank import RuleBank
from ..bank.sources import Rules
from ..bank.storage import changed_bank, is_bank
from ..generation import Generation, Prompt, encode_prompt, generate, rule_memory
from ..memory.serving import Retrieval, one_a_step
from ..tokenizer import control_tokens

REJOIN_SHARE, REJOIN_SECONDS = 0.1, 0.1
"""How long the next batch waits for as many as were answered or waited: share of the last one's time, and at most."""


@dataclass
class Book:
    """Rules that are served under a name.

    Attributes
    ----------
    name : str
        What requests call it.
    bank : RuleBank
        Its rules, in memory.
    folder : Path or None
        The bank folder in which a change is written before it is acknowledged; None: the rules cannot be changed.
    encoder : callable or None
        Opens the encoder of rules that are added.
    """

    name: str
    bank: RuleBank
    folder: Path | None = None
    encoder: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not is_bank(self.folder):
            self.folder = None

    def put(self, rules: Rules, *, replace: bool) -> None:
        """Add rules, or replace those of the same ids, on disk and then in memory.

        Raises
        ------
        ValueError, KeyError
            As `RuleBank.add` and `RuleBank.replace`; or if the book has no folder to keep the change in.
        """
        folder = self._folder()
        encode: Any = self.encoder and self.encoder()
        made_with = self.bank.encoder and encode.fingerprint  # a bank may not know its encoder
        more = RuleBank.from_rules(rules, encode, encoder=made_with)
        with self._changed(folder) as held:
            (held.replace if replace else held.add)(more)
        own = more.to(self.bank.device, self.bank.dtype)
        (self.bank.replace if replace else self.bank.add)(own)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove rules, on disk and then in memory; `KeyError` for an id that is not there."""
        with self._changed(self._folder()) as held:
            held.remove(list(ids))
        self.bank.remove(list(ids))

    @contextmanager
    def _changed(self, folder: Path) -> Iterator[RuleBank]:
        with changed_bank(folder) as held:
            if (held.ids, held.texts) != (self.bank.ids, self.bank.texts):
                raise ValueError(
                    f"the rules in {folder} were changed by another process, and are not those that are served; start "
                    "the server anew"
                )
            yield held

    def _folder(self) -> Path:
        if self.folder is None:
            raise ValueError(
                f"the rules of {self.name!r} come from a file, so a change would be lost; serve a bank: dynarule bank "
                "build RULES --out BANK"
            )
        return self.folder


@dataclass
class Request:
    """One answer that is asked for.

    Attributes
    ----------
    book : str
        Name of the book.
    prompt : Prompt
        As for `dynarule.generate`.
    max_tokens : int
        Most tokens of the answer.
    temperature, top_p : float
        0 is greedy.
    seed : int or None
        With a seed, the answer is sampled alone: a batch would share its random numbers.
    stop : tuple of str
        Where the answer ends, these words left out.
    emit : callable
        Called from the engine's thread with each new piece of text.
    done : callable
        Called there once, with an `Answer` or an exception.
    """

    book: str
    prompt: Prompt
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    emit: Callable[[str], None] = lambda text: None
    done: Callable[[Any], None] = lambda answer: None
    cancelled: bool = field(default=False, init=False)
    prompt_tokens: int = field(default=0, init=False)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Requests of one kind are answered in one batch."""
        return self.book, self.temperature, self.top_p if self.temperature else 1.0


@dataclass(frozen=True)
class Answer:
    """A finished answer: its text, why it ended ("stop" or "length"), tokens read and written, and what was read."""

    text: str
    finish: str
    prompt_tokens: int
    tokens: int
    trace: tuple[Retrieval, ...]


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
    most_waiting : int
        Requests that may wait.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        books: Sequence[Book],
        *,
        batch_size: int = 16,
        most_tokens: int = 1024,
        most_waiting: int = 1024,
    ) -> None:
        self.model, self.tokenizer, self.most_tokens = model, tokenizer, most_tokens
        self.books = {book.name: book for book in books}
        self.batch_size, self.most_waiting = batch_size, most_waiting
        self.opening, self.layer = (
            model.active_peft_config.question_opening,
            model.active_peft_config.confidence_layer,
        )
        self._memories = {name: rule_memory(model, tokenizer, book.bank) for name, book in self.books.items()}
        self._waiting: deque[Request] = deque()
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="dynarule-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn; its answer has no more tokens than the model has places for.

        Raises
        ------
        OverflowError
            If too many wait already.
        ValueError
            If its prompt leaves no place for an answer: alone, not with the batch that it would be answered in.
        """
        request.prompt_tokens = count = len(encode_prompt(self.tokenizer, request.prompt))
        longest = getattr(self.model.config, "max_position_embeddings", None) or 1 << 30
        if count >= longest:
            raise ValueError(
                f"the prompt has {count:,} tokens, the model reads {longest:,} at most, answer included"
            )
        request.max_tokens = min(request.max_tokens, self.most_tokens, longest - count)
        with self._wake:
            if len(self._waiting) >= self.most_waiting:
                self._waiting = deque(waiting for waiting in self._waiting if not waiting.cancelled)
            if len(self._waiting) >= self.most_waiting:
                raise OverflowError(f"{len(self._waiting)} requests wait already; try again later")
            self._waiting.append(request)
            self._wake.notify()

    def run(self, job: Callable[[], Any]) -> Any:
        """Run something between two batches, such as a change of rules, and return what it returns, or raise."""
        done, result = threading.Event(), list[Any]()

        def task() -> None:
            try:
                result.append(job())
            except Exception as error:
                result.append(error)
            done.set()

        with self._wake:
            if self._closed:
                raise ValueError("the server is closing")
            self._jobs.append(task)
            self._wake.notify()
        done.wait()
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def close(self) -> None:
        """Finish the batch that is being answered, and end."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        expected, until = 1, 0.0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._jobs or self._waiting or self._closed)
                # who was answered together asks again at once, but not in the same moment
                self._wake.wait_for(partial(self._has, expected), max(0.0, until - time.monotonic()))
                if self._closed:
                    return
                job = self._jobs.popleft() if self._jobs else None
                batch = [] if job else self._next_batch()
            if job:
                job()
            elif batch:
                begun = time.monotonic()
                self._answer(batch)
                expected, end = min(len(batch) + len(self._waiting), self.batch_size), time.monotonic()
                until = end + min(REJOIN_SHARE * (end - begun), REJOIN_SECONDS)

    def _has(self, count: int) -> bool:
        return len(self._waiting) >= count or bool(self._jobs) or self._closed

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
            watch = _Watch(self.tokenizer, batch, by_line=memory.config.min_support > 0)
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
            for row, (request, answer) in enumerate(zip(batch, answers, strict=True)):
                text, finish = watch.finish(row, answer)
                count = min(len(answer.token_ids), request.max_tokens)
                trace = tuple(search for search in one_a_step(answer.trace) if search.layer == self.layer)
                request.done(Answer(text, finish, request.prompt_tokens, count, trace))
        except Exception as error:  # one request must not end the server
            for request in batch:
                request.done(error)


class _Watch:
    """Follows the rows of a batch token by token: passes new text on, and ends a row at its stop words or length."""

    def __init__(self, tokenizer: Any, batch: Sequence[Request], by_line: bool = False) -> None:
        self.tokenizer, self.batch, self.by_line = tokenizer, batch, by_line
        self.hidden = set(control_tokens(tokenizer))
        self.sent = [""] * len(batch)
        self.texts = [""] * len(batch)
        self.ended = [""] * len(batch)
        self.start: int | None = None  # of the answers

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        if self.start is None:
            self.start = input_ids.shape[1] - 1  # called after each new token
        for row, tokens in enumerate(input_ids[:, self.start :].tolist()):
            if not self.ended[row]:
                self._follow(row, tokens)
        return torch.tensor([bool(ended) for ended in self.ended], device=input_ids.device)

    def _follow(self, row: int, tokens: list[int]) -> None:
        request = self.batch[row]
        text = self._decode(tokens[: request.max_tokens])
        cut = min((at for word in request.stop if (at := text.find(word)) >= 0), default=None)
        if request.cancelled or cut is not None:
            self.ended[row] = "stop"
        elif len(tokens) >= request.max_tokens:
            self.ended[row] = "length"
        self.texts[row] = text[:cut]
        # what may be the beginning of a stop word, or of a character, waits
        held = max(
            (n for word in request.stop for n in range(1, len(word)) if text.endswith(word[:n])), default=0
        )
        ready = self.texts[row] if self.ended[row] else text[: len(text) - held].rstrip("\ufffd")
        if self.by_line:  # a step that no rule supports is not begun
            ready = ready[: ready.rfind("\n") + 1]
        if ready.startswith(self.sent[row]) and len(ready) > len(self.sent[row]):
            request.emit(ready[len(self.sent[row]) :])
            self.sent[row] = ready

    def finish(self, row: int, answer: Generation) -> tuple[str, str]:
        """Return the text of a finished row and why it ended; what was not passed on yet is."""
        text = self.texts[row] if self.ended[row] else answer.text
        if text.startswith(self.sent[row]) and len(text) > len(self.sent[row]):
            self.batch[row].emit(text[len(self.sent[row]) :])
        return text, self.ended[row] or "stop"

    def _decode(self, tokens: Sequence[int]) -> str:
        kept = [token for token in tokens if token not in self.hidden]
        return str(self.tokenizer.decode(kept, clean_up_tokenization_spaces=False))
