"""Questions to an OpenAI-compatible endpoint through the `openai` package, with replies kept on disk.

Whatever a server sends becomes a `Reply` or a `NoAnswerError`; neither holds the key or what no file can.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from .endpoint import KEY_VARIABLE, URL_VARIABLE, check_endpoint, read_key
from .files import write_whole

try:
    import httpx2
    import openai
    from anyio.from_thread import start_blocking_portal
except ImportError as error:
    raise ImportError(f'openai is needed ({error}); type: pip install "ruleworld-data[merge]"') from None

MOST_BYTES = 1 << 20
"""Longest reply that is read."""
SHORTEST_SECRET = 6
"""A shorter key, such as the ``EMPTY`` of some local servers, is a word like any other and no secret."""
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
    """A chat completion.

    Attributes
    ----------
    text : str
        Empty if it was filtered, or all tokens were spent on thinking.
    finish : {"stop", "length", "filter"}
    prompt_tokens, completion_tokens : int
        As the server counts them; 0 if it does not, or says what cannot be.
    cached : bool
        Read from disk.
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
        Folder where replies are kept, by the hash of the request; what is there is not asked for again.
    timeout : float
        Seconds for one request, from connecting to the last byte.
    tries : int
        Requests per question.

    Raises
    ------
    ValueError
        As `check_endpoint` and `read_key`.
    """

    def __init__(
        self, url: str, model: str, replies: Path | None = None, timeout: float = 120.0, tries: int = 5
    ) -> None:
        check_endpoint(url, model)
        self.url, self.model, self.replies, self.timeout = url, model, replies, timeout
        self.key, sent = read_key(url)
        self._withheld = bool(self.key) and not sent
        names = ("OpenAI-Organization", "OpenAI-Project", *(() if sent else ("Authorization",)))
        self._unsent = {name: openai.Omit() for name in names}
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=self.key if sent else "none",
            admin_api_key="",
            max_retries=max(0, tries - 1),
            http_client=_BoundedClient(timeout, self._read),
        )
        self._loop = start_blocking_portal()

    def __enter__(self) -> ChatClient:
        self._portal = self._loop.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """End the tries of all threads: no further request is sent."""
        self._portal.call(self._client.close)
        self._loop.__exit__(*error)

    def stored(self, body: Mapping[str, Any]) -> Reply | None:
        """Return the reply to a request that is on disk; one that is damaged is not there."""
        path = self._path(body)
        try:
            if path is None:
                return None
            kept = json.loads(path.read_bytes(), parse_int=_number)
            return replace(self._reply(kept["text"], kept["finish"], kept), cached=True)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

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
        """
        if reply := self.stored(body):
            return reply
        try:
            reply = self._portal.call(self._ask, body)
        except (CancelledError, RuntimeError):
            raise NoAnswerError("stopped") from None
        if path := self._path(body):
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = asdict(reply)
            del kept["cached"]
            write_whole(path, json.dumps(kept))
        return reply

    def _path(self, body: Mapping[str, Any]) -> Path | None:
        """Where a reply is kept: a file of its own, so that processes need not take turns."""
        request = {"url": self.url, "model": self.model, **body}
        text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        name = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return self.replies and self.replies / name[:2] / f"{name}.json"

    async def _ask(self, body: Mapping[str, Any]) -> Reply:
        create = self._client.chat.completions.with_raw_response.create
        try:
            found = await create(model=self.model, stream=False, extra_headers=self._unsent, **body)
            return self._read(found.content)
        except openai.APIStatusError as error:
            status, said = error.status_code, error.body
            detail = self._line(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False))
            reason = self._line(f"HTTP {status} {error.response.reason_phrase}") + f": {detail}" * bool(
                detail
            )
            if self._withheld and status in (401, 403):
                reason += (
                    f"; no key was sent, since {KEY_VARIABLE} was not given for this server; if it is for it, set "
                    f"{URL_VARIABLE}={self.url}"
                )
            raise NoAnswerError(reason, hopeless=status in _HOPELESS, status=status) from None
        except Exception as error:  # of any other kind: a server can break a library in ways of its own
            cause = error.__cause__ or error
            # A host name that cannot be one is told as UnicodeError; bytes that are no text are the server's.
            away = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError | httpx2.InvalidURL
            if isinstance(cause, away | UnicodeError) and not isinstance(cause, UnicodeDecodeError):
                raise NoAnswerError(self._line(f"cannot connect: {_root(cause)!r}"), hopeless=True) from None
            if isinstance(cause, httpx2.TimeoutException):
                raise NoAnswerError(f"no answer within {self.timeout:g} s") from None
            told = "" if isinstance(cause, httpx2.DecodingError) else "the connection broke: "
            raise NoAnswerError(self._line(f"{told}{str(cause) or repr(cause)}")) from None

    def _read(self, body: bytes) -> Reply:
        """Read the body of a chat completion; a ValueError if it is none."""
        try:
            value = json.loads(body, parse_int=_number)
            choice = value["choices"][0]
            text = choice["message"]["content"]
            reason = choice.get("finish_reason")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            start = self._line(body.decode(errors="replace"), 80)
            raise ValueError(f"the reply is no chat completion, it begins with {start!r}") from None
        return self._reply("" if text is None else text, reason, value.get("usage"))

    def _reply(self, text: Any, reason: Any, usage: Any) -> Reply:
        if not isinstance(text, str):
            raise ValueError(f"the reply's content is no text but {type(text).__name__}")
        finish = {"content_filter": "filter"}.get(str(reason), str(reason))
        counts = usage if isinstance(usage, dict) else {}
        return Reply(
            self._clean(text),
            "length" if finish == "length" else "filter" if finish == "filter" else "stop",
            _count(counts.get("prompt_tokens")),
            _count(counts.get("completion_tokens")),
        )

    def _clean(self, text: str) -> str:
        """Take the key out of a text, however it is wrapped or escaped, and what UTF-8 cannot hold."""
        text = text.encode(errors="replace").decode()
        if len(self.key) >= SHORTEST_SECRET:
            for form in {self.key, quote(self.key, safe=""), json.dumps(self.key)[1:-1]}:
                text = re.sub(r"\s*".join(map(re.escape, form)), "[key]", text, flags=re.IGNORECASE)
        return text

    def _line(self, text: str, most: int = 200) -> str:
        """Return the beginning of a text on one line without signs that steer a terminal."""
        text = "".join(sign if sign.isprintable() else " " for sign in self._clean(text[:MOST_BYTES]))
        return " ".join(text.split())[:most]


def _root(error: BaseException) -> BaseException:
    """Return what an error comes from: the network's own word, such as "connection refused"."""
    while deeper := error.__cause__ or error.__context__:
        error = deeper
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    return error


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


def _number(digits: str) -> int:
    # Python refuses to read thousands of digits; what is too large to be true stays so.
    return int(digits[:20])


class _BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client whose replies are bounded in time and size.

    What it raises are errors of a connection, which the `openai` client tries again.

    Parameters
    ----------
    timeout : float
        Seconds for a whole reply, headers and all; the library's own limit is per read, which a server that drips never
        reaches.
    read : callable
        Takes the body of a reply with status 200; a ValueError means that it is none.
    """

    def __init__(self, timeout: float, read: Any) -> None:
        # A redirect would turn the request into a GET and could carry the key to another host. Nothing compressed:
        # a few kilobytes could become gigabytes.
        # No cookies either: a malformed one would break all requests to come.
        super().__init__(
            timeout=timeout,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        self.seconds, self.read = timeout, read

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its reply to the end."""
        try:
            async with asyncio.timeout(self.seconds):
                response = await super().send(request, **options | {"stream": True})
                body = await self._body(response)
        except TimeoutError:
            raise httpx2.ReadTimeout("the reply takes too long", request=request) from None
        if response.is_success:
            try:
                self.read(body)
            except ValueError as error:
                raise httpx2.DecodingError(str(error), request=request) from None
        headers = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _body(self, response: httpx2.Response) -> bytes:
        body = b""
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise httpx2.DecodingError(f"the reply is longer than {MOST_BYTES} bytes")
        finally:
            await response.aclose()
        return body
