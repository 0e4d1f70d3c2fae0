"""Answers of the engine as a response: whole, or as a stream of server-sent events."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request as HttpRequest
from fastapi.responses import StreamingResponse

from ..tokenizer import Prompt, read_message
from .engine import Engine
from .protocol import MOST_ANSWERS, Asked, ChatCompletion, RequestError, choice, piece, usage
from .requests import Answer, Request
from .unfamiliar import unfamiliar

Events = asyncio.Queue[tuple[int, Any]]
"""What the requests of a client emit, each with the request's number."""


async def respond(
    engine: Engine, book: str, asked: Asked, prompts: Sequence[Prompt], http: HttpRequest
) -> Any:
    """Answer all prompts ``n`` times, at once or as a stream of server-sent events."""
    each = asked.n or 1
    if not prompts or len(prompts) * each > MOST_ANSWERS:
        raise RequestError(400, f"a request asks for 1 to {MOST_ANSWERS} answers, got {len(prompts) * each}")
    loop, events = asyncio.get_running_loop(), Events()

    def ask(index: int) -> Request:
        return Request(
            book,
            prompts[index // each],
            lambda what: loop.call_soon_threadsafe(events.put_nowait, (index, what)),
            max_tokens=asked.max_tokens or 256,
            temperature=asked.temperature or 0.0,
            top_p=asked.top_p or 1.0,
            seed=None if asked.seed is None else asked.seed + index,
            stop=tuple(filter(None, asked.stop or ())),
        )

    requests = [ask(index) for index in range(len(prompts) * each)]
    try:
        for request in requests:
            engine.submit(request)
        # a question that is too long for the model has been refused by now: its words take long
        words, _ = unfamiliar(engine.tokenizer, [_question(prompt) for prompt in prompts])
    except Exception:
        _cancel(requests)
        raise
    told = {"unknown_words": words} if words else {}
    chat = isinstance(asked, ChatCompletion)
    name, kind = ("chatcmpl", "chat.completion") if chat else ("cmpl", "text_completion")
    now = int(time.time())
    head = {"id": f"{name}-{secrets.token_hex(12)}", "object": kind, "created": now, "model": book}
    if asked.stream:
        head["object"] = "chat.completion.chunk" if chat else kind
        with_usage = bool((asked.stream_options or {}).get("include_usage"))
        lines = _stream(events, requests, head, told, with_usage)
        return StreamingResponse(lines, media_type="text/event-stream")
    # the body is read, so all that can still come is that the client leaves
    answered, gone = asyncio.ensure_future(_whole(events, requests)), asyncio.ensure_future(http.receive())
    try:
        await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            raise RequestError(499, "the client has gone")
        answers = answered.result()
    finally:
        answered.cancel()
        gone.cancel()
    choices = [choice(chat, index, answers[index]) for index in sorted(answers)]
    return head | told | {"choices": choices, "usage": usage(answers.values())}


def _question(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else read_message(prompt[-1], "the request")["content"]


def _cancel(requests: Sequence[Request]) -> None:
    for request in requests:
        request.cancelled = True


async def _pieces(events: Events, requests: Sequence[Request]) -> AsyncIterator[tuple[int, str | Answer]]:
    """Yield what requests emit until all are answered, or raise; whoever stops listening cancels them."""
    left = len(requests)
    try:
        while left:
            index, what = await events.get()
            if isinstance(what, Exception):
                raise RequestError.of(what, answering=True)
            left -= isinstance(what, Answer)
            yield index, what
    finally:
        _cancel(requests)


async def _whole(events: Events, requests: Sequence[Request]) -> dict[int, Answer]:
    return {index: what async for index, what in _pieces(events, requests) if isinstance(what, Answer)}


async def _stream(
    events: Events,
    requests: Sequence[Request],
    head: dict[str, Any],
    told: dict[str, Any],
    with_usage: bool,
) -> AsyncIterator[str]:
    def line(value: Any) -> str:
        return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"

    answers = []
    chat = head["object"] == "chat.completion.chunk"
    try:
        async for index, what in _pieces(events, requests):
            answers += [what] if isinstance(what, Answer) else []
            yield line(head | told | {"choices": [piece(chat, index, what)]})
            told = {}
    except RequestError as problem:
        yield line(problem.body)
        return
    if with_usage:
        yield line(head | {"choices": [], "usage": usage(answers)})
    yield "data: [DONE]\n\n"
