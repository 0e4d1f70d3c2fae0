"""Questions to an OpenAI-compatible endpoint: the `openai` client, each reply kept in a file."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from . import Completion, Finish, GoneError
from .address import KEY_VARIABLE, URL_VARIABLE, read_key

SHORTEST_SECRET = 6
"""A shorter key, such as the ``EMPTY`` of some local servers, is a word like any other and no secret."""
_LONGEST_REASON = 200
_HOPELESS = (*range(300, 400), 401, 403, 404, 405)
"""Redirects, no access, nothing there: the same for every question."""
_KEPT = ("text", "finish", "prompt_tokens", "completion_tokens")
_FINISH: dict[str, Finish] = {"length": "length", "content_filter": "filter"}
_TOO_LONG = "context_length|context length|context window|too many tokens|maximum context|too long".split("|")


class ChatClient:
    """An OpenAI-compatible endpoint and a model there, safe to use from several threads.

    The key of the environment variable ``RULEWORLD_API_KEY`` is sent to the server that it is for, see `address`; none
    is sent to others, whatever other variables of the `openai` client hold. A request that was answered is not sent
    again: ``replies`` is a folder with a file each. ``timeout`` is in seconds without a byte.
    """

    def __init__(self, url: str, model: str, replies: Path, timeout: float, tries: int) -> None:
        import openai

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
        self.close = self._client.close
        self._replies = replies
        replies.mkdir(parents=True, exist_ok=True)

    def complete(self, body: Mapping[str, Any]) -> Completion:
        """Return one chat completion and keep it; failures that may pass are tried again.

        ``body`` are the fields of the request besides ``model``. Where no request brings an answer, the completion has
        the ``error``; a GoneError ends the run. A ValueError says that what is kept is no reply.
        """
        request = json.dumps({"url": self.url, "model": self.model, **body}, sort_keys=True)
        kept = self._replies / f"{sha256(request.encode()).hexdigest()}.json"
        if kept.is_file():
            try:
                known = json.loads(kept.read_bytes())
                return Completion(**{name: known[name] for name in _KEPT}, cached=True)
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{kept} holds what is no reply; delete it") from None
        start = time.perf_counter()
        done = self._ask(body)
        if done.finish not in ("context", "error"):
            write_whole(kept, json.dumps({name: getattr(done, name) for name in _KEPT}))
        return replace(done, seconds=time.perf_counter() - start)

    def _ask(self, body: Mapping[str, Any]) -> Completion:
        import httpx2
        import openai

        reply = None
        try:
            create = self._client.chat.completions.create
            reply = create(model=self.model, stream=False, extra_headers=self._unsent, **body)
            return self._read(reply)
        except openai.APIStatusError as error:
            return self._refused(error)
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.InvalidURL):
                raise self._gone(self._line(f"cannot connect: {cause}")) from None
            reason = f"the connection broke: {cause or error}"
            if isinstance(error, openai.APITimeoutError):
                reason = f"no answer within {self.timeout:g} s"
        except Exception as error:  # whatever a server makes the library raise, as of a body that is no JSON
            reason = f"no chat completion ({error!r}): {reply}"
        return Completion(finish="error", error=self._line(reason))

    def _read(self, reply: Any) -> Completion:
        """Read a reply, whose objects the client builds without checking what the server sent."""
        choice = reply.choices[0]
        text = choice.message.content
        if not isinstance(text, str | None):
            raise TypeError(f"the content is of type {type(text).__name__}")
        prompt, completion = (getattr(reply.usage, name, 0) for name in _KEPT[2:])
        finish = _FINISH.get(str(choice.finish_reason), "stop")
        return Completion(self._clean(text or ""), finish, _tokens(prompt), _tokens(completion))

    def _refused(self, error: Any) -> Completion:
        status, detail = error.status_code, error.body
        reason = f"HTTP {status} {error.response.reason_phrase}"
        if detail:
            reason += f": {detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)}"
        reason = self._line(reason)
        if status in (400, 413, 422) and any(mark in reason.lower() for mark in _TOO_LONG):
            return Completion(finish="context")
        if os.environ.get(KEY_VARIABLE) and not self.key and status in (401, 403):
            reason += (
                f"; no key was sent, since {KEY_VARIABLE} was not given for this server; if it is for it, set "
                f"{URL_VARIABLE}={self.url}"
            )
        if status in _HOPELESS:
            raise self._gone(reason) from None
        return Completion(finish="error", error=reason)

    def _gone(self, reason: str) -> GoneError:
        return GoneError(f"{self.url} gives no answers ({reason}); check URL, model and {KEY_VARIABLE}")

    def _clean(self, text: str) -> str:
        """Take out the key, which some servers echo, and what UTF-8 cannot hold."""
        text = text.encode(errors="replace").decode()
        return text.replace(self.key, "[key]") if len(self.key) >= SHORTEST_SECRET else text

    def _line(self, text: str) -> str:
        """Return the beginning of a text on one line, without characters that steer a terminal."""
        printable = "".join(sign if sign.isprintable() else " " for sign in self._clean(text))
        return " ".join(printable.split())[:_LONGEST_REASON]


def _tokens(count: object) -> int:
    """Return a count as the server gives it, 0 where it gives none that can be."""
    return count if type(count) is int and 0 <= count < 1 << 53 else 0
