"""``dynarule ui``: the conversation of ``dynarule chat`` in the browser, where answers appear as they are written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from .._lazy import need
from ..bank.clauses import split_rule
from ..serve.local import from_elsewhere
from .chat import HELP, RuleChat
from .loading import Served, closed_stdin
from .shared import MaxNewTokensOption, TopOption, grouped, message_of, note, printable

POSTS = ("/gradio_api/queue/join", "/gradio_api/cancel", "/gradio_api/reset")
"""All that the page posts to: a question, and that it was stopped."""
MOST_BYTES = 4 << 20
"""Of a request: the conversation so far comes with each."""
PHONE = "@media (max-width: 640px) { .gr-group:has(#question) { order: -1 } }"
"""On a narrow screen the question stands above what was said, not below the fold."""


def page(reply: Callable[[str], Iterator[str]], examples: Sequence[str] = ()) -> Any:
    """Return the page as gradio's Blocks, with questions to begin with."""
    gr = need("gradio", "ui")

    def respond(line: str, _history: list[Any]) -> Iterator[str]:
        try:
            yield from map(printable, reply(line.strip()))
        except (ValueError, KeyError, ImportError) as error:
            raise gr.Error(message_of(error)) from None

    return gr.ChatInterface(
        respond,
        title="A rule book inside a language model",
        description="The rules are no part of the prompt: at every step the model looks for those it needs.",
        # what rules and models write is shown as it is, never as Markdown or HTML
        chatbot=gr.Chatbot(render_markdown=False, placeholder=re.sub("^([+-])", r"\\\1", HELP, flags=re.M)),
        textbox=gr.Textbox(elem_id="question", placeholder="A question", submit_btn=True, stop_btn=True),
        examples=list(map(printable, examples)) or None,
        cache_examples=False,
        concurrency_limit=1,  # one model and one book: one thing at a time
        analytics_enabled=False,
        api_visibility="private",
    )


def example_questions(rules: Sequence[str], count: int = 3) -> list[str]:
    """Return questions about some rules, from the whole of a book: each takes a premise and asks what follows."""
    parts = [split_rule(rule) for rule in rules[:: max(1, len(rules) // 100)]]
    given = [re.sub(r"^(if|when)\s+", "", part.premise, flags=re.IGNORECASE) for part in parts if part.sure]
    return [f"{text[:1].upper()}{text[1:]}. What follows?" for text in given[:: max(1, len(given) // count)]][
        :count
    ]


def refusal(scope: dict[str, Any]) -> int | None:
    """Return the status that refuses a request (ASGI) which the page, opened from this machine, does not make."""
    headers = dict(scope["headers"])
    if from_elsewhere(headers):
        return 403
    if scope["method"] in ("GET", "HEAD"):
        return None
    if scope["method"] != "POST" or scope["path"].rstrip("/") not in POSTS:
        return 404
    length = headers.get(b"content-length", b"")
    return None if length.isdigit() and int(length) <= MOST_BYTES else 413


def guarded(app: Any) -> Any:
    """Return a web application (ASGI) without the requests of `refusal`, and without websockets."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        status = refusal(scope) if scope["type"] == "http" else None
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif status is None:
            await app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body"})

    return answer


def launch(blocks: Any, port: int | None, **options: Any) -> Any:
    """Serve a page to this machine alone, whatever gradio's environment variables say."""
    middleware = [need("starlette.middleware", "ui").Middleware(guarded)]
    return blocks.launch(
        server_name="127.0.0.1",
        server_port=port,
        app_kwargs={"middleware": middleware},
        quiet=True,
        share=False,
        ssr_mode=False,
        mcp_server=False,
        **options,
    )


@grouped
def ui(
    served: Served,
    max_new_tokens: MaxNewTokensOption = 256,
    top: TopOption = 2,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of this machine.")] = 7860,
) -> None:
    """Ask a rule book in the browser, as in `dynarule chat`: each step as it is written, and the rules it found.

    Whoever opens the page sees the same book and may change it. Example: dynarule ui --model MODEL --adapter adapter
    --rules rules.txt
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = need("gradio", "ui")
    with closed_stdin():
        chat = RuleChat(*served.load(), served.encoder)
    chat.max_new_tokens, chat.top = max_new_tokens, top
    note(f"{len(chat.bank):,} rules; the page is at http://127.0.0.1:{port}, Ctrl-C ends it")
    # fonts of the system: none are loaded from elsewhere
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    blocks = page(chat.reply, example_questions(chat.bank.texts))
    launch(blocks, port, theme=theme, css=PHONE, footer_links=[])
