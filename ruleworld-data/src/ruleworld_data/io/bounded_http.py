"""The HTTP client below `ruleworld_data.io.chat`: replies are bounded in time and size, and redirects are errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx2
import openai

MOST_BYTES = 1 << 20
"""Longest reply that is read."""


class BoundedClient(openai.DefaultHttpxClient):
    """An HTTP client for chat completions.

    What it raises are errors of a connection, which the `openai` client tries again.

    Parameters
    ----------
    timeout : float
        Seconds for a whole reply; the library's own limit is per read, which a server that drips never reaches.
    check : callable
        Takes the body of a reply with status 200; a ValueError means that it is none.
    before : callable
        Called before each request; what it raises ends the tries.
    """

    def __init__(self, timeout: float, check: Callable[[bytes], object], before: Callable[[], None]) -> None:
        # A redirect would turn the request into a GET and could carry the key to another host.
        super().__init__(timeout=timeout, follow_redirects=False)
        self.seconds, self.check, self.before = timeout, check, before

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its reply to the end."""
        self.before()
        deadline = time.monotonic() + self.seconds
        response = super().send(request, **options | {"stream": True})
        body = b""
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("the reply takes too long", request=request)
                if len(body) > MOST_BYTES:
                    raise httpx2.DecodingError(
                        f"the reply is longer than {MOST_BYTES} bytes", request=request
                    )
        finally:
            response.close()
        if response.is_success:
            try:
                self.check(body)
            except ValueError as error:
                raise httpx2.DecodingError(str(error), request=request) from None
        headers = [(k, v) for k, v in response.headers.multi_items() if k.lower() != "content-encoding"]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            content=body,
            request=request,
            extensions=response.extensions,
        )
