"""The HTTP routes: OpenAI's chat completions, completions and models, and those that list and change rules."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest

from .._lazy import need
from ..bank.sources import LONGEST, make_rules
from ..generation import Prompt, encode_prompt, question_prompts, read_message
from ..memory.serving import Retrieval
from .engine import Answer, Book, Engine, Request
from .local import from_elsewhere

MOST_BYTES = 1 << 20
"""Of a request."""
MOST_ANSWERS = 64
"""Of a request: ``n`` times its prompts."""
TOP_RULES = 5
"""Rules of a step that an answer names."""
LEAST_TEMPERATURE = 0.01
"""Above 0: below it, logits would overflow."""
UNSUPPORTED = (
    "tools functions logprobs logit_bias frequency_penalty presence_penalty echo suffix guided_json guided_regex "
    "guided_choice guided_grammar structured_outputs"
).split()
"""Fields that would change an answer."""
StopWord = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """What chat completions and completions share; fields that are not named here, nor `UNSUPPORTED`, are ignored."""

    model_config = ConfigDict(extra="allow")
    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(0.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=MOST_ANSWERS)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: StopWord | Annotated[list[StopWord], Field(max_length=16)] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None


class ChatCompletion(Asked):
    """A chat completion: one question, alone."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    response_format: dict[str, Any] | None = None


class TextCompletion(Asked):
    """A completion of one or several questions."""

    prompt: str | list[str]


class Rule(BaseModel):
    """A rule to add or to put in another's place; a premise or conclusion that is not given is found in its text."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(min_length=1)
    text: str = Field(min_length=1)
    premise: str | None = Field(None, pattern=r"\S", max_length=LONGEST)
    conclusion: str | None = Field(None, pattern=r"\S", max_length=LONGEST)


NewRules = Annotated[list[Rule], Field(min_length=1)]


class RequestError(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    @property
    def body(self) -> dict[str, Any]:
        """What a client reads, of OpenAI's shape and types, as an answer or within a stream."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "requests" if self.status == 429 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def make_app(engine: Engine, api_key: str | None = None) -> Any:
    """Return the web application (ASGI) of an engine.

    With a key, every route but ``/health`` asks for it; without one, only this machine's own names are answered.
    """
    fastapi = need("fastapi", "serve")
    responses, natural = need("fastapi.responses", "serve"), partial(fastapi.Query, ge=0)
    app = fastapi.FastAPI(title="dynarule", openapi_url=None, docs_url=None, redoc_url=None)

    def error(status: int, message: str, code: str | None = None, param: str | None = None) -> Any:
        return responses.JSONResponse(RequestError(status, message, code, param).body, status)

    @app.middleware("http")
    async def guard(request: Any, go_on: Any) -> Any:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if (
            api_key
            and request.url.path != "/health"
            and not secrets.compare_digest(given.encode("latin-1"), api_key.encode())
        ):
            return error(
                401, "wrong or missing API key; send it as: Authorization: Bearer KEY", "invalid_api_key"
            )
        if not api_key and from_elsewhere(dict(request.scope["headers"])):
            return error(403, "without an API key this server answers to 127.0.0.1 and localhost alone")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES or "transfer-encoding" in request.headers:
            return error(413, f"a request has at most {MOST_BYTES:,} bytes, of a length that it says")
        return await go_on(request)

    @app.exception_handler(RequestError)
    async def refused(_: Any, problem: RequestError) -> Any:
        return responses.JSONResponse(problem.body, problem.status)

    @app.exception_handler(need("fastapi.exceptions", "serve").RequestValidationError)
    async def invalid(_: Any, problem: Any) -> Any:
        first = problem.errors()[0]
        field = ".".join(map(str, first["loc"][1:])) or "body"
        return error(400, f"{field}: {first['msg']}", param=field)

    @app.exception_handler(need("starlette.exceptions", "serve").HTTPException)
    async def missing(request: Any, problem: Any) -> Any:
        return error(problem.status_code, f"{request.method} {request.url.path}: {problem.detail}")

    @app.exception_handler(OSError)
    async def failed(_: Any, problem: OSError) -> Any:
        return error(500, f"{type(problem).__name__}: {problem}")

    @app.get("/health")
    async def health() -> Any:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> Any:
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "dynarule"} for name in engine.books
        ]
        return {"object": "list", "data": listed}

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatCompletion, http: HttpRequest) -> Any:
        if (asked.response_format or {"type": "text"}).get("type") != "text":
            raise RequestError(400, "response_format is not supported: answers are text")
        asked.max_tokens = asked.max_completion_tokens or asked.max_tokens
        prompt = _chat_prompt(engine, asked.messages)
        return await _respond(engine, asked, [prompt], "chat.completion", responses, http)

    @app.post("/v1/completions")
    async def completions(asked: TextCompletion, http: HttpRequest) -> Any:
        questions = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        prompts = _refusing(lambda: question_prompts(engine.tokenizer, questions, engine.opening))
        return await _respond(engine, asked, prompts, "text_completion", responses, http)

    @app.get("/v1/books/{name}/rules")
    async def rules(name: str, contains: str = "", limit: int = natural(100), after: int = natural(0)) -> Any:
        bank = _book(engine, name).bank
        names = "id", "text", "premise", "conclusion"

        def listed() -> Any:  # parts of many rules take long, which others must not wait for
            both = engine.run(lambda: list(zip(bank.ids, bank.texts, strict=True)))
            found = [(i, t) for i, t in both if contains.lower() in t.lower()]
            some = found[after : after + limit]
            page = [dict(zip(names, (i, t, *bank.parts_of(t)), strict=True)) for i, t in some]
            return {"object": "list", "total": len(found), "data": page}

        return await asyncio.to_thread(listed)

    async def changed(name: str, change: Any) -> Any:
        book = _book(engine, name)
        await asyncio.to_thread(_refusing, lambda: engine.run(lambda: change(book)))
        return {"rules": len(book.bank)}

    def put(new: list[Rule], replace: bool) -> Any:
        columns = zip(*((r.text, r.conclusion, r.id, r.premise) for r in new), strict=True)
        texts, conclusions, ids, premises = map(list, columns)
        return lambda book: book.put(
            make_rules(texts, conclusions, ids)._replace(premises=premises), replace=replace
        )

    @app.post("/v1/books/{name}/rules", status_code=201)
    async def add(name: str, new: NewRules) -> Any:
        return await changed(name, put(new, replace=False))

    @app.put("/v1/books/{name}/rules")
    async def replace(name: str, new: NewRules) -> Any:
        return await changed(name, put(new, replace=True))

    @app.delete("/v1/books/{name}/rules/{rule_id:path}")
    async def remove(name: str, rule_id: str) -> Any:
        return await changed(name, lambda book: book.remove([rule_id]))

    return app


def _refusing(run: Any) -> Any:
    """Run something; what a client can cause becomes an answer of its own."""
    try:
        return run()
    except KeyError as problem:
        raise RequestError(404, str(problem.args[0])) from None
    except (ValueError, ImportError) as problem:
        raise RequestError(400, str(problem)) from None


def _book(engine: Engine, name: str) -> Book:
    if name not in engine.books:
        known = ", ".join(engine.books)
        raise RequestError(
            404, f"there is no model {name!r}; a rule book is asked by its name: {known}", "model_not_found"
        )
    return engine.books[name]


def _chat_prompt(engine: Engine, messages: Sequence[dict[str, Any]]) -> Prompt:
    """Return the prompt of a conversation, which is one question; a tokenizer without a template has no other roles."""
    if getattr(engine.tokenizer, "chat_template", None):
        _refusing(lambda: encode_prompt(engine.tokenizer, messages))
        return messages
    if len(messages) != 1 or messages[0].get("role") != "user":
        raise RequestError(
            400, "this model reads one message of the role user: ask one question, with all that it needs"
        )
    content = _refusing(lambda: read_message(messages[0], "the request")["content"])
    prompts: list[Prompt] = _refusing(lambda: question_prompts(engine.tokenizer, [content], engine.opening))
    return prompts[0]


async def _respond(
    engine: Engine, asked: Asked, prompts: Sequence[Prompt], kind: str, responses: Any, http: HttpRequest
) -> Any:
    """Answer all prompts ``n`` times, at once or as a stream of server-sent events."""
    book = _book(engine, asked.model).name
    count = asked.n or 1
    if not prompts or len(prompts) * count > MOST_ANSWERS:
        raise RequestError(400, f"a request asks for 1 to {MOST_ANSWERS} answers, got {len(prompts) * count}")
    if count > 1 and not asked.temperature:
        raise RequestError(400, "n answers without a temperature are all the same; set temperature, or n=1")
    if given := [name for name in UNSUPPORTED if (asked.model_extra or {}).get(name)]:
        raise RequestError(
            400, f"{', '.join(given)}: not supported, and leaving it out would change the answer"
        )
    if 0 < (asked.temperature or 0) < LEAST_TEMPERATURE:
        raise RequestError(400, f"temperature must be 0 (greedy) or from {LEAST_TEMPERATURE} to 2")
    stops = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    loop, events = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Any]]()

    def passing(index: int) -> Any:
        return lambda what: loop.call_soon_threadsafe(events.put_nowait, (index, what))

    requests = []
    for index in range(len(prompts) * count):
        seed = None if asked.seed is None else asked.seed + index
        settings = (asked.max_tokens or 256, asked.temperature or 0.0, asked.top_p or 1.0, seed)
        emit = passing(index)
        words = tuple(filter(None, stops))
        requests.append(Request(book, prompts[index // count], *settings, words, emit, emit))
    try:
        for request in requests:
            engine.submit(request)
    except (OverflowError, ValueError) as problem:
        for request in requests:
            request.cancelled = True
        full = isinstance(problem, OverflowError)
        raise RequestError(
            429 if full else 400, str(problem), "rate_limit_exceeded" if full else None
        ) from None
    head = {
        "id": f"{'chatcmpl' if kind.startswith('chat') else 'cmpl'}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": book,
    }
    if asked.stream:
        usage = bool((asked.stream_options or {}).get("include_usage"))
        lines = _stream(events, requests, head, usage)
        return responses.StreamingResponse(lines, media_type="text/event-stream")
    answers: dict[int, Answer] = {}
    gone = asyncio.ensure_future(
        http.receive()
    )  # the body is read; all that can follow is that the client leaves
    try:
        while len(answers) < len(requests):
            event = asyncio.ensure_future(events.get())
            await asyncio.wait((event, gone), return_when=asyncio.FIRST_COMPLETED)
            if not event.done():
                event.cancel()
                raise RequestError(499, "the client has gone")
            index, what = event.result()
            if isinstance(what, Exception):
                raise _failure(what)
            if isinstance(what, Answer):
                answers[index] = what
    finally:
        gone.cancel()
        for request in requests:
            request.cancelled = True
    choices = [_choice(kind, index, answers[index]) for index in sorted(answers)]
    return head | {"choices": choices, "usage": _usage(answers.values())}


def _failure(error: Exception) -> RequestError:
    return RequestError(400 if isinstance(error, ValueError) else 500, str(error) or type(error).__name__)


def _choice(kind: str, index: int, answer: Answer) -> dict[str, Any]:
    said = (
        {"message": {"role": "assistant", "content": answer.text}}
        if kind.startswith("chat")
        else {"text": answer.text}
    )
    return {
        "index": index,
        **said,
        "finish_reason": answer.finish,
        "logprobs": None,
        "rules": _steps(answer.trace),
    }


def _steps(trace: Sequence[Retrieval]) -> list[dict[str, Any]]:
    """Return what was read at each step: ids of rules (file and line where documents were read), texts, scores."""
    return [
        {
            "step": search.step,
            "rules": [
                {"id": name, "text": text, "score": score}
                for name, text, score in list(zip(search.ids, search.texts, search.scores, strict=True))[
                    :TOP_RULES
                ]
            ],
        }
        for search in trace
    ]


def _usage(answers: Any) -> dict[str, int]:
    read, written = sum(a.prompt_tokens for a in answers), sum(a.tokens for a in answers)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def _stream(
    events: asyncio.Queue[tuple[int, Any]], requests: Sequence[Request], head: dict[str, Any], usage: bool
) -> AsyncIterator[str]:
    kind: Literal["delta", "text"] = "delta" if head["object"] == "chat.completion" else "text"
    chunk = head | ({"object": "chat.completion.chunk"} if kind == "delta" else {})
    answers: list[Answer] = []

    def line(value: Any) -> str:
        return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"

    def part(index: int, text: str, finish: str | None = None, **more: Any) -> str:
        said: Any = ({"role": "assistant", "content": text} if text else {}) if kind == "delta" else text
        return line(chunk | {"choices": [{"index": index, kind: said, "finish_reason": finish, **more}]})

    try:
        while len(answers) < len(requests):
            index, what = await events.get()
            if isinstance(what, str):
                yield part(index, what)
            elif isinstance(what, Answer):
                answers.append(what)
                yield part(index, "", what.finish, rules=_steps(what.trace))
            else:
                yield line(_failure(what).body)
                return
        if usage:
            yield line(chunk | {"choices": [], "usage": _usage(answers)})
        yield "data: [DONE]\n\n"
    finally:  # the client may have gone
        for request in requests:
            request.cancelled = True
