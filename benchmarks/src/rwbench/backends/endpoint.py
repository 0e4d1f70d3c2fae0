"""Any OpenAI-compatible endpoint: retries, concurrency, tokens and cost counted, replies kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole
from ruleworld_data.merge.client import Endpoint as Client
from ruleworld_data.merge.client import NoAnswerError, Settings, UnreadableError

from ..cache import cache_root
from ..prompts import Prompt, shipped_template
from ..spec import canonical_json
from . import Backend, Completion, Decoding, GoneError, component, cut

CONCURRENCY = "RWBENCH_CONCURRENCY"
PER_MINUTE = "RWBENCH_REQUESTS_PER_MINUTE"
TIMEOUT = "RWBENCH_TIMEOUT"
TRIES = "RWBENCH_TRIES"
GIVE_UP_AFTER = 5
"""Questions in a row without an answer, for reasons that the next one shares, after which a run stops."""
FAILED_IN_A_ROW = 10
"""Questions in a row without an answer for any reason, each tried `TRIES` times, after which a run stops."""
_failing: Counter[tuple[str, str]] = Counter()
"""Such questions by URL and model, over all batches of this process."""
_TOO_LONG = (
    "context_length",
    "context length",
    "context window",
    "too many tokens",
    "maximum context",
    "too long",
)


@component
class Endpoint(Backend):
    """A model behind ``/chat/completions``. The key is read from ``RULEWORLD_API_KEY``.

    Parameters
    ----------
    model : str
        Name of the model there.
    url : str
        Base URL, such as ``http://localhost:8000/v1``.
    prompt : str
        Id of the prompt template, from `of`.
    temperature : float
        Sent as it is.
    price_in, price_out : float or None
        US dollars per million tokens, for the cost in ``usage``.
    """

    name = "endpoint"
    whole_batches = False

    model: str = ""
    url: str = ""
    prompt: str = ""
    temperature: float = 0.0
    price_in: Any = None
    price_out: Any = None

    def __post_init__(self) -> None:
        Client(self.url, self.model)  # says what is wrong with a URL before the first question

    @classmethod
    def of(cls, model: str, url: str, **changes: Any) -> Endpoint:
        """Return the backend of a model, with the id of its prompt template."""
        return cls(model, url, shipped_template().id, **changes)

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.model

    def prepare(self) -> None:
        """Check that the prompt template is the one that the spec names."""
        if self.prompt and self.prompt != self.template.id:
            raise ValueError(
                f"the run was made for prompt template {self.prompt}, this version has {self.template.id}; "
                "start a new run"
            )

    @property
    def batch(self) -> int:
        """Prompts at once: enough that a slow one does not hold up the others."""
        return 4 * _whole_number(CONCURRENCY, 8)

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield the answers in order; what comes early is kept on disk meanwhile."""
        client = Client(
            self.url, self.model, Settings(timeout=_number(TIMEOUT, 120.0), tries=_whole_number(TRIES, 5))
        )
        in_a_row = 0
        with ThreadPoolExecutor(_whole_number(CONCURRENCY, 8)) as threads:
            waiting = [threads.submit(self._one, client, prompt, decoding) for prompt in prompts]
            try:
                for future in waiting:
                    completion, hopeless = future.result()
                    in_a_row = in_a_row + 1 if hopeless else 0
                    if in_a_row >= min(GIVE_UP_AFTER, len(prompts)):
                        raise GoneError(
                            f"{self.url} gives no answers ({completion.error}); check the URL, the model's name "
                            f"and the key in RULEWORLD_API_KEY"
                        )
                    self._give_up(completion)
                    yield completion
            finally:
                client.stop.set()
                threads.shutdown(cancel_futures=True)

    def _give_up(self, completion: Completion) -> None:
        """Count failures in a row; a GoneError when they are too many for going on to make sense."""
        server = (self.url, self.model)
        if completion.error is None:
            if not completion.cached:  # a reply from disk says nothing about the server
                _failing.pop(server, None)
            return
        _failing[server] += 1
        if _failing[server] >= FAILED_IN_A_ROW:
            del _failing[server]
            raise GoneError(
                f"{self.url} failed on {FAILED_IN_A_ROW} questions in a row (the last: {completion.error}); wait until "
                f"it answers again; for a slow one set {TIMEOUT} to more seconds, or {CONCURRENCY} to fewer at once"
            )

    def _one(self, client: Client, prompt: Prompt, decoding: Decoding) -> tuple[Completion, bool]:
        """Return one completion, and whether the next question will fare no better."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": self.temperature,
            "max_tokens": decoding.max_new_tokens,
        }
        if decoding.stop:
            body["stop"] = list(decoding.stop)
        path = _reply_path({"url": self.url, "model": self.model, **body})
        reply = _stored(path)
        cached, start = reply is not None, time.perf_counter()
        if reply is None:
            try:
                _pace()
                reply = client.complete(body, _read)
            except NoAnswerError as error:
                said = str(error)
                if said.startswith(("HTTP 400", "HTTP 413", "HTTP 422")) and any(
                    mark in said.lower() for mark in _TOO_LONG
                ):
                    return Completion(finish="context"), False
                return Completion(finish="error", error=said), error.hopeless
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(reply).encode())
        seconds = 0.0 if cached else time.perf_counter() - start
        return (
            Completion(
                cut(reply["text"], decoding.stop),
                reply["finish"],
                reply["prompt_tokens"],
                reply["completion_tokens"],
                seconds,
                cached,
                self._cost(reply),
            ),
            False,
        )

    def _cost(self, reply: dict[str, Any]) -> float | None:
        if self.price_in is None or self.price_out is None:
            return None
        return (reply["prompt_tokens"] * self.price_in + reply["completion_tokens"] * self.price_out) / 1e6


def _read(body: bytes) -> dict[str, Any]:
    """Read a chat completion; UnreadableError if it is none."""
    try:
        value = json.loads(body)
        choice, usage = value["choices"][0], value.get("usage") or {}
        text = choice["message"]["content"]
        counts = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(
            f"the reply is no chat completion, it begins with {body[:80].decode(errors='replace')!r}"
        ) from None
    if text is not None and not isinstance(text, str):
        raise UnreadableError(f"the reply's content is no text but {type(text).__name__}")
    finish = {"length": "length", "content_filter": "filter"}.get(choice.get("finish_reason"), "stop")
    return {"text": text or "", "finish": finish, "prompt_tokens": counts[0], "completion_tokens": counts[1]}


def _reply_path(request: dict[str, Any]) -> Path:
    """Where the reply to a request is kept: a file of its own, so that processes need not take turns."""
    name = hashlib.sha256(canonical_json(request).encode()).hexdigest()
    return cache_root() / "replies" / name[:2] / f"{name}.json"


def _stored(path: Path) -> dict[str, Any] | None:
    try:
        reply = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None  # not there, or damaged by something else: asked again
    return (
        reply
        if isinstance(reply, dict) and {"text", "finish", "prompt_tokens", "completion_tokens"} <= set(reply)
        else None
    )


class _Pacer:
    """Lets requests start at most so often, over all threads."""

    def __init__(self) -> None:
        self.lock, self.next = threading.Lock(), 0.0

    def wait(self, interval: float) -> None:
        with self.lock:
            now = time.monotonic()
            start = max(now, self.next)
            self.next = start + interval
        time.sleep(max(0.0, start - now))


@lru_cache(maxsize=1)
def _pacer() -> _Pacer:
    return _Pacer()


def _pace() -> None:
    per_minute = _number(PER_MINUTE, 0.0)
    if per_minute:
        _pacer().wait(60.0 / per_minute)


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if value < 0:
        raise GoneError(f"the environment variable {variable} must be a number of 0 or more, got {text!r}")
    return value


def _whole_number(variable: str, default: int) -> int:
    return max(1, int(_number(variable, default)))
