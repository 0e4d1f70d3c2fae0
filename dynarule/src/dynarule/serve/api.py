"""The HTTP routes: OpenAI's chat completions, completions and models, those that change rules, and a page to ask on."""

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ..bank.sources import make_rules
from ..tokenizer import Prompt, question_prompts, read_message
from .book import Book
from .engine import Engine
from .protocol import ChatCompletion, NewRules, RequestError, TextCompletion
from .respond import respond

MOST_BYTES = 1 << 20
"""Of a request."""
HOSTS = ("127.0.0.1", "localhost")
PAGE = Path(__file__).parent / "page.html"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; frame-ancestors 'none'"
}
MODEL = {"object": "model", "created": 0, "owned_by": "dynarule"}


class _AnyText(PathConvertor):
    """The rest of an address, which may hold slashes and line breaks."""

    regex = "(?s:.*)"


register_url_convertor("any", _AnyText())
Natural = Annotated[int, Query(ge=0)]


def make_app(engine: Engine, api_key: str | None = None) -> FastAPI:
    """Return the web application (ASGI) of an engine.

    With a key, every route but ``/health`` and the page asks for it; without one, only this machine's names may ask.
    """
    app = FastAPI(title="dynarule", openapi_url=None, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guard(request: Request, go_on: Any) -> Any:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        key = given.encode("latin-1") if scheme.lower() == "bearer" else b""
        is_open = not api_key or request.url.path in ("/health", "/")
        if not is_open and not secrets.compare_digest(key, str(api_key).encode()):
            said = "wrong or missing API key; send it as: Authorization: Bearer KEY"
            return error_response(RequestError(401, said, "invalid_api_key"))
        # a stranger's page can give its own name the address of this machine, or post without reading what comes back
        host = request.headers.get("host", "").lower()
        own = host.partition(":")[0] in HOSTS and request.headers.get("origin") in (None, f"http://{host}")
        if not api_key and not own:
            said = "without an API key this server answers to 127.0.0.1 and localhost alone"
            return error_response(RequestError(403, said))
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES or "transfer-encoding" in request.headers:
            said = f"a request has at most {MOST_BYTES:,} bytes, of a length that it says"
            return error_response(RequestError(413, said))
        try:
            return await go_on(request)
        except Exception as problem:  # here, so that a page of another origin may read it, too
            failure = RequestError.of(problem)
            if failure.status == 500:
                logging.getLogger(__name__).exception("a request was not answered")
            return error_response(failure)

    # Pages of other origins cannot know a key; preflight requests are answered before it is asked for.
    if api_key:
        app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])

    @app.exception_handler(HTTPException)
    @app.exception_handler(RequestValidationError)
    async def failed(request: Request, problem: Any) -> JSONResponse:
        if isinstance(problem, HTTPException):
            said = f"{request.method} {request.url.path}: {problem.detail}"
            return error_response(RequestError(problem.status_code, said))
        return error_response(RequestError.of_fields(problem.errors()[0]))

    read = partial(app.api_route, methods=["GET", "HEAD"])  # probes of load balancers send HEAD

    @read("/")
    async def page() -> FileResponse:
        return FileResponse(PAGE, headers=PAGE_HEADERS)

    @read("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @read("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name} | MODEL for name in engine.books]}

    @read("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return {"id": book_of(engine, name).name} | MODEL

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatCompletion, http: Request) -> Any:
        book = book_of(engine, asked.model)
        return await respond(engine, book.name, asked, [_chat_prompt(engine, asked.messages)], http)

    @app.post("/v1/completions")
    async def completions(asked: TextCompletion, http: Request) -> Any:
        book = book_of(engine, asked.model)
        prompts = question_prompts(engine.tokenizer, asked.prompt, engine.config.question_opening)
        return await respond(engine, book.name, asked, prompts, http)

    @app.get("/v1/books/{name}/rules")
    def rules(name: str, contains: str = "", limit: Natural = 100, after: Natural = 0) -> dict[str, Any]:
        bank = book_of(engine, name).bank
        both = engine.run(lambda: list(zip(bank.ids, bank.texts, strict=True)))
        found = [(i, t) for i, t in both if contains.lower() in t.lower()]
        some = [(i, t, *bank.parts_of(t)) for i, t in found[after : after + limit]]
        data = [dict(zip(("id", "text", "premise", "conclusion"), rule, strict=True)) for rule in some]
        return {"object": "list", "total": len(found), "data": data}

    def changed(name: str, change: Callable[[Book], None]) -> dict[str, int]:
        book = book_of(engine, name)
        try:
            engine.run(lambda: change(book))
        except KeyError as unknown:
            raise RequestError(404, str(unknown.args[0])) from None
        return {"rules": len(book.bank)}

    @app.post("/v1/books/{name}/rules", status_code=201)
    @app.put("/v1/books/{name}/rules")
    def put(name: str, new: NewRules, http: Request) -> dict[str, int]:
        columns = zip(*((r.text, r.conclusion, r.id, r.premise) for r in new), strict=True)
        texts, conclusions, ids, premises = map(list, columns)
        made = make_rules(texts, conclusions, ids)._replace(premises=premises)
        return changed(name, lambda book: book.put(made, replace=http.method == "PUT"))

    @app.delete("/v1/books/{name}/rules/{rule_id:any}")
    def remove(name: str, rule_id: str) -> dict[str, int]:
        return changed(name, lambda book: book.remove([rule_id]))

    return app


def error_response(problem: RequestError) -> JSONResponse:
    """Return an error as a client reads it."""
    return JSONResponse(problem.body, problem.status)


def book_of(engine: Engine, name: str) -> Book:
    """Return a book by its name."""
    if name in engine.books:
        return engine.books[name]
    known = ", ".join(engine.books)
    said = f"there is no model {name!r}; a rule book is asked by its name: {known}"
    raise RequestError(404, said, "model_not_found")


def _chat_prompt(engine: Engine, messages: Sequence[dict[str, Any]]) -> Prompt:
    """Return the prompt of a conversation, which is one question; a tokenizer without a template has no other roles."""
    if getattr(engine.tokenizer, "chat_template", None):
        return messages
    roles = [message.get("role") for message in messages]
    if roles != ["user"]:
        said = f"this model reads one message of the role user, got {roles!r:.200}"
        raise ValueError(f"{said}; ask one question, with all it needs")
    content = read_message(messages[0], "the request")["content"]
    return question_prompts(engine.tokenizer, [content], engine.config.question_opening)[0]
