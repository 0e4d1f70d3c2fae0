"""Questions to an OpenAI-compatible endpoint, with time limits and bounded retries."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from threading import Event
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

KEY_VARIABLE = "RULEWORLD_API_KEY"
T = TypeVar("T")
MOST_BYTES = 1 << 20
"""Longest reply that is read."""


@dataclass(frozen=True)
class Settings:
    """How patiently to ask.

    Attributes
    ----------
    timeout : float
        Seconds for one request.
    tries : int
        Requests per question.
    backoff, longest_wait : float
        Seconds before the second request, doubled each time, and the most, also of a ``Retry-After``.
    threads : int
        Questions under way at once.
    failures_in_a_row : int
        Questions without an answer after which the endpoint counts as gone.
    """

    timeout: float = 120.0
    tries: int = 5
    backoff: float = 1.0
    longest_wait: float = 60.0
    threads: int = 8
    failures_in_a_row: int = 20


class NoAnswerError(Exception):
    """A question got no answer.

    Parameters
    ----------
    reason : str
        What happened.
    hopeless : bool
        The endpoint cannot be reached, or does not serve this user or path: the next question will fare no better.
    """

    def __init__(self, reason: str, *, hopeless: bool = False) -> None:
        super().__init__(reason)
        self.hopeless = hopeless


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would turn the request into a GET and carry the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint and a model there.

    Attributes
    ----------
    url : str
        Base URL, to which ``/chat/completions`` is added.
    model : str
        Name of the model.
    settings : Settings
        Time limits and retries.
    stop : threading.Event
        Set to end all waiting.
    """

    url: str
    model: str
    settings: Settings = field(default_factory=Settings)
    stop: Event = field(default_factory=Event, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            port_ok = parts.port != 0
        except ValueError:
            parts, port_ok = urlsplit(""), False
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if parts.scheme not in ("http", "https") or not (parts.hostname and port_ok and plain):
            raise ValueError(
                f"endpoint {self.url!r} is no web address; type the base URL of an OpenAI-compatible server, "
                "e.g. --endpoint http://localhost:8000/v1"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "the endpoint must be a bare base URL without user, query or fragment; put a key into the environment "
                f"variable {KEY_VARIABLE}"
            )
        if parts.path.rstrip("/").endswith("/chat/completions"):
            base = self.url.rstrip("/").removesuffix("/chat/completions")
            raise ValueError(
                f"endpoint {self.url!r} must not name /chat/completions; type: --endpoint {base}"
            )
        if not self.model.strip():
            raise ValueError("the model has no name; type the one the server lists, e.g. --model qwen")

    def ask(self, prompt: str) -> str:
        """Return the model's answer to a prompt, at temperature 0.

        Raises
        ------
        NoAnswerError
            If no request brought an answer.
        """
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0}
        return self.complete(body, _answer)

    def complete(self, body: Mapping[str, Any], read: Callable[[bytes], T]) -> T:
        """Send one chat completion and return what ``read`` makes of the reply; failures are tried again.

        Parameters
        ----------
        body : mapping
            Fields of the request besides ``model``: messages, temperature, ...
        read : callable
            Reads the reply's bytes; an `UnreadableError` counts as a failure of the request.

        Raises
        ------
        NoAnswerError
            If no request brought an answer.
        """
        delay = self.settings.backoff
        for left in range(self.settings.tries - 1, -1, -1):
            wait = delay
            try:
                return self._request(body, read)
            except HTTPError as error:
                failure = NoAnswerError(_said(error), hopeless=error.code in _HOPELESS)
                if error.code not in (408, 429) and error.code < 500:
                    raise failure from None
                wait = _retry_after(error.headers.get("Retry-After"), delay)
            except (URLError, UnicodeError) as error:  # UnicodeError: a host name that cannot be one
                failure = NoAnswerError(f"cannot connect: {getattr(error, 'reason', error)}", hopeless=True)
            except TimeoutError:
                failure = NoAnswerError(f"no answer within {self.settings.timeout:g} s")
            except (OSError, HTTPException) as error:
                failure = NoAnswerError(f"the connection broke: {error or type(error).__name__}")
            except UnreadableError as error:
                failure = NoAnswerError(str(error))
            if not left or self.stop.wait(min(wait, self.settings.longest_wait)):
                raise failure
            delay *= 2
        raise NoAnswerError("no request was allowed")  # tries < 1

    def _request(self, body: Mapping[str, Any], read: Callable[[bytes], T]) -> T:
        whole = {"model": self.model, **body, "stream": False}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := os.environ.get(KEY_VARIABLE, "").strip():
            headers["Authorization"] = f"Bearer {key}"
        url = self.url.rstrip("/") + "/chat/completions"
        request = Request(url, json.dumps(whole).encode(), headers, method="POST")
        deadline = time.monotonic() + self.settings.timeout
        with build_opener(_NoRedirect).open(request, timeout=self.settings.timeout) as response:
            return read(_read(response, deadline))


_HOPELESS = (*range(300, 400), 401, 403, 404, 405)
"""Redirects, no access, nothing there: the same for every question."""


class UnreadableError(Exception):
    """A reply that is no chat completion."""


def _read(response: HTTPResponse, deadline: float) -> bytes:
    """Read a reply; the socket's own limit is per read, so a server that drips must be cut off here."""
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError
        if size > MOST_BYTES:
            raise UnreadableError(f"the reply is longer than {MOST_BYTES} bytes")
    return b"".join(chunks)


def _answer(reply: bytes) -> str:
    try:
        content = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        start = reply[:80].decode(errors="replace")
        raise UnreadableError(f"the reply is no chat completion, it begins with {start!r}") from None
    if content is None:  # filtered, or all tokens spent on thinking: asking again would not help
        return ""
    if not isinstance(content, str):
        raise UnreadableError(f"the reply's content is no text but {type(content).__name__}")
    return content


def _said(error: HTTPError) -> str:
    """Status and the beginning of the body, on one line."""
    try:
        body = " ".join(error.read(2000).decode(errors="replace").split())[:200]
    except (OSError, HTTPException):
        body = ""
    finally:
        error.close()
    return f"HTTP {error.code} {error.reason}" + (f": {body}" if body else "")


def _retry_after(header: str | None, default: float) -> float:
    """Seconds that a ``Retry-After`` header asks for: a number or a date."""
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return default
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
