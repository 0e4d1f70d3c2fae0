"""Questions to an OpenAI-compatible endpoint through the `openai` package: its retries and time-outs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any
from urllib.parse import urlsplit

KEY_VARIABLE = "RULEWORLD_API_KEY"
_HOPELESS = (*range(300, 400), 401, 403, 404, 405)
"""Redirects, no access, nothing there: the same for every question."""


class NoAnswerError(Exception):
    """A question got no answer.

    Parameters
    ----------
    reason : str
        What happened.
    hopeless : bool
        The endpoint cannot be reached, or does not serve this user or path: the next question will fare no better.
    status : int or None
        Of the HTTP reply, if there was one.
    """

    def __init__(self, reason: str, *, hopeless: bool = False, status: int | None = None) -> None:
        super().__init__(reason)
        self.hopeless, self.status = hopeless, status


@dataclass(frozen=True)
class Reply:
    """A chat completion: its text, why it ended, and tokens as the server counts them (0 if it does not)."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class ChatClient:
    """An OpenAI-compatible endpoint and a model there; safe to use from several threads.

    The key is read from the environment variable ``RULEWORLD_API_KEY``; none is sent without it, whatever other
    variables of the `openai` client hold.

    Parameters
    ----------
    url : str
        Base URL, to which ``/chat/completions`` is added.
    model : str
        Name of the model.
    timeout : float
        Seconds for one request.
    tries : int
        Requests per question.

    Raises
    ------
    ValueError
        As `check_endpoint`, or if the key is one that no header can carry.
    ImportError
        Without the `openai` package.
    """

    def __init__(self, url: str, model: str, timeout: float = 120.0, tries: int = 5) -> None:
        check_endpoint(url, model)
        try:
            import openai

            from .bounded_http import BoundedClient
        except ImportError as error:
            raise ImportError(
                f'openai is needed ({error}); type: pip install "ruleworld-data[merge]"'
            ) from None
        self.url, self.model, self.timeout = url, model, timeout
        self._stopped = Event()
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not (key.isascii() and key.isprintable()):  # the library's message would hold the key
            raise ValueError(
                f"the environment variable {KEY_VARIABLE} holds signs that no key has; set it again"
            )
        names = ("OpenAI-Organization", "OpenAI-Project", *(() if key else ("Authorization",)))
        self._unsent = {name: openai.Omit() for name in names}
        self._client = openai.OpenAI(
            base_url=url,
            api_key=key or "none",
            admin_api_key="",
            max_retries=max(0, tries - 1),
            http_client=BoundedClient(timeout, read_reply, self._before),
        )

    def ask(self, prompt: str) -> str:
        """Return the model's answer to a prompt, at temperature 0.

        Raises
        ------
        NoAnswerError
            If no request brought an answer.
        """
        return self.complete({"messages": [{"role": "user", "content": prompt}], "temperature": 0}).text

    def complete(self, body: Mapping[str, Any]) -> Reply:
        """Return one chat completion; failures that may pass are tried again.

        Parameters
        ----------
        body : mapping
            Fields of the request besides ``model``: messages, temperature, ...

        Raises
        ------
        NoAnswerError
            If no request brought an answer.
        """
        import httpx2
        import openai

        try:
            create = self._client.chat.completions.with_raw_response.create
            return read_reply(
                create(model=self.model, stream=False, extra_headers=self._unsent, **body).content
            )
        except openai.APIStatusError as error:
            detail = " ".join(error.response.text[:2000].split())[:200]
            reason = f"HTTP {error.status_code} {error.response.reason_phrase}" + (
                f": {detail}" if detail else ""
            )
            raise NoAnswerError(
                reason, hopeless=error.status_code in _HOPELESS, status=error.status_code
            ) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
                raise NoAnswerError(f"cannot connect: {cause}", hopeless=True) from None
            if isinstance(cause, httpx2.TimeoutException):
                raise NoAnswerError(f"no answer within {self.timeout:g} s") from None
            if isinstance(cause, httpx2.DecodingError):
                raise NoAnswerError(str(cause)) from None
            raise NoAnswerError(f"the connection broke: {cause or error}") from None
        except (httpx2.InvalidURL, UnicodeError) as error:  # a host name that cannot be one
            raise NoAnswerError(f"cannot connect: {error}", hopeless=True) from None

    def close(self) -> None:
        """End the tries of all threads: no further request is sent."""
        self._stopped.set()

    def _before(self) -> None:
        if self._stopped.is_set():
            raise NoAnswerError("stopped")


def check_endpoint(url: str, model: str) -> None:
    """Check the address of an endpoint and the name of a model, without asking.

    Raises
    ------
    ValueError
        If they cannot be right; the text says what to type.
    """
    try:
        parts = urlsplit(url)
        port_ok = parts.port != 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not (parts.hostname and port_ok and plain):
        raise ValueError(
            f"endpoint {url!r} is no web address; type the base URL of an OpenAI-compatible server, "
            "e.g. --endpoint http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "the endpoint must be a bare base URL without user, query or fragment; put a key into the environment "
            f"variable {KEY_VARIABLE}"
        )
    if parts.path.rstrip("/").endswith("/chat/completions"):
        base = url.rstrip("/").removesuffix("/chat/completions")
        raise ValueError(f"endpoint {url!r} must not name /chat/completions; type: --endpoint {base}")
    if not model.strip():
        raise ValueError("the model has no name; type the one the server lists, e.g. --model qwen")


def read_reply(body: bytes) -> Reply:
    """Read the body of a chat completion.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        value = json.loads(body)
        choice, usage = value["choices"][0], value.get("usage") or {}
        text = choice["message"]["content"]
        counts = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        start = body[:80].decode(errors="replace")
        raise ValueError(f"the reply is no chat completion, it begins with {start!r}") from None
    if text is not None and not isinstance(text, str):
        raise ValueError(f"the reply's content is no text but {type(text).__name__}")
    # No content: filtered, or all tokens spent on thinking; asking again would not help.
    return Reply(text or "", str(choice.get("finish_reason") or "stop"), *counts)
