"""Questions to an OpenAI-compatible endpoint: the `openai` client, each reply kept in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from .endpoint import KEY_VARIABLE, URL_VARIABLE, check_endpoint, read_key
from .files import write_whole

try:
    import httpx2
    import openai
except ImportError as error:
    raise ImportError(f'openai is needed ({error}); type: pip install "ruleworld-data[endpoint]"') from None

SHORTEST_SECRET = 6
"""A shorter key, such as the ``EMPTY`` of some local servers, is a word like any other and no secret."""
_LONGEST_REASON = 200
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
    """A chat completion; ``text`` is empty if it was filtered or all tokens were spent on thinking.

    Token counts are the server's, 0 if it gives none; ``cached`` replies were read from disk.
    """

    text: str
    finish: Literal["stop", "length", "filter"]
    prompt_tokens: int
    completion_tokens: int
    cached: bool = False


class ChatClient:
    """An OpenAI-compatible endpoint and a model there; a context manager, safe to use from several threads.

    The key of the environment variable ``RULEWORLD_API_KEY`` is sent to the server that it is for, see
    `ruleworld_data.io.endpoint`; none is sent to others, whatever other variables of the `openai` client hold.

    Parameters
    ----------
    url : str
        Base URL, to which ``/chat/completions`` is added.
    model : str
        Name of the model.
    replies : Path, optional
        Folder of replies, one file each: a request that was answered is not sent again.
    timeout : float
        Seconds without a byte after which a request is given up.
    tries : int
        Requests per question; the `openai` client waits between them.

    Raises
    ------
    ValueError
        As `check_endpoint` and `read_key`.
    """

    def __init__(
        self, url: str, model: str, replies: Path | None = None, timeout: float = 120.0, tries: int = 5
    ) -> None:
        check_endpoint(url, model)
        self.url, self.model, self.timeout = url, model, timeout
        self.key = read_key(url)
        headers = ("OpenAI-Organization", "OpenAI-Project", *(() if self.key else ("Authorization",)))
        self._unsent = {name: openai.Omit() for name in headers}
        self._client = openai.OpenAI(
            base_url=url,
            api_key=self.key or "none",
            timeout=timeout,
            max_retries=max(0, tries - 1),
            # a redirect would turn the request into a GET and could carry the key to another host
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )
        self._replies = replies
        if replies is not None:
            replies.mkdir(parents=True, exist_ok=True)
        self._stopped = False

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connections; questions of other threads end without an answer."""
        self._stopped = True
        self._client.close()

    def complete(self, body: Mapping[str, Any]) -> Reply:
        """Return one chat completion and keep it; failures that may pass are tried again.

        Parameters
        ----------
        body : mapping
            Fields of the request besides ``model``: messages, temperature, ...

        Raises
        ------
        NoAnswerError
            If no request brought an answer.
        OSError
            If the reply cannot be kept.
        ValueError
            If what is kept for the request is no reply.
        """
        request = json.dumps({"url": self.url, "model": self.model, **body}, sort_keys=True)
        kept = self._replies and self._replies / f"{sha256(request.encode()).hexdigest()}.json"
        if kept and kept.is_file():
            try:
                return replace(Reply(**json.loads(kept.read_bytes())), cached=True)
            except (ValueError, TypeError):
                raise ValueError(f"{kept} holds what is no reply; delete it") from None
        if self._stopped:
            raise NoAnswerError("stopped")
        reply = self._read(self._send(body))
        if kept:
            write_whole(kept, json.dumps(asdict(reply)))
        return reply

    def _send(self, body: Mapping[str, Any]) -> Any:
        try:
            return self._client.chat.completions.create(
                model=self.model, stream=False, extra_headers=self._unsent, **body
            )
        except openai.APIStatusError as error:
            status, detail = error.status_code, error.body
            reason = f"HTTP {status} {error.response.reason_phrase}"
            if detail:
                reason += f": {detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)}"
            reason = self._line(reason)
            if os.environ.get(KEY_VARIABLE) and not self.key and status in (401, 403):
                reason += (
                    f"; no key was sent, since {KEY_VARIABLE} was not given for this server; if it is for it, set "
                    f"{URL_VARIABLE}={self.url}"
                )
            raise NoAnswerError(reason, hopeless=status in _HOPELESS, status=status) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.InvalidURL):
                raise NoAnswerError(self._line(f"cannot connect: {cause}"), hopeless=True) from None
            if isinstance(error, openai.APITimeoutError):
                raise NoAnswerError(f"no answer within {self.timeout:g} s") from None
            raise NoAnswerError(self._line(f"the connection broke: {cause or error}")) from None
        except (
            Exception
        ) as error:  # whatever a server can make the library raise: a body that is no JSON, ...
            raise NoAnswerError(self._line(f"no chat completion: {error!r}")) from None

    def _read(self, completion: Any) -> Reply:
        # the client builds its objects without checking what the server sent
        try:
            choice = completion.choices[0]
            text, reason = choice.message.content, choice.finish_reason
            if not isinstance(text, str | None):
                raise TypeError(f"the content is of type {type(text).__name__}")
        except (AttributeError, TypeError, IndexError) as error:
            raise NoAnswerError(self._line(f"no chat completion ({error}): {completion}")) from None
        counts = [getattr(completion.usage, name, 0) for name in ("prompt_tokens", "completion_tokens")]
        tokens = [count if type(count) is int and 0 <= count < 1 << 53 else 0 for count in counts]
        finishes: dict[Any, Any] = {"length": "length", "content_filter": "filter"}
        return Reply(self._clean(text or ""), finishes.get(str(reason), "stop"), tokens[0], tokens[1])

    def _clean(self, text: str) -> str:
        """Take out the key, which some servers echo, and what UTF-8 cannot hold."""
        text = text.encode(errors="replace").decode()
        return text.replace(self.key, "[key]") if len(self.key) >= SHORTEST_SECRET else text

    def _line(self, text: str) -> str:
        """Return the beginning of a text on one line, without characters that steer a terminal."""
        printable = "".join(sign if sign.isprintable() else " " for sign in self._clean(text))
        return " ".join(printable.split())[:_LONGEST_REASON]
