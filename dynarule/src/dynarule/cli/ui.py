"""``dynarule ui``: the conversation of ``dynarule chat`` in the browser, where answers appear as they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from .._lazy import need
from .chat import HELP, RuleChat
from .loading import Served, closed_stdin
from .shared import MaxNewTokensOption, TopOption, grouped, message_of, note


def page(reply: Callable[[str], Iterator[str]]) -> Any:
    """Return the page as gradio's Blocks."""
    gr = need("gradio", "ui")

    def respond(line: str, _history: list[Any]) -> Iterator[str]:
        try:
            yield from reply(line.strip())
        except (ValueError, KeyError, ImportError) as error:
            raise gr.Error(message_of(error)) from None

    return gr.ChatInterface(
        respond,
        title="A rule book inside a language model",
        description="The rules are no part of the prompt: at every step the model looks for those it needs.",
        # what rules and models write is shown as it is, never as Markdown or HTML
        chatbot=gr.Chatbot(render_markdown=False, placeholder=HELP),
        concurrency_limit=1,  # one model and one book: one thing at a time
        analytics_enabled=False,
        api_visibility="private",
    )


@grouped
def ui(
    served: Served,
    max_new_tokens: MaxNewTokensOption = 256,
    top: TopOption = 2,
    port: Annotated[int, typer.Option("--port", min=1, help="Of this machine.")] = 7860,
) -> None:
    """Ask a rule book in the browser, as in `dynarule chat`: each step as it is written, and the rules it found.

    Whoever opens the page sees the same book and may change it. Example: dynarule ui --model MODEL --adapter adapter
    --rules rules.txt
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = need("gradio", "ui")
    with closed_stdin():
        chat = RuleChat(*served.load(), served.encoder, served.fol)
    chat.max_new_tokens, chat.top = max_new_tokens, top
    note(f"{len(chat.bank):,} rules; the page is at http://127.0.0.1:{port}, Ctrl-C ends it")
    # fonts of the system: none are loaded from elsewhere
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    page(chat.stream).launch(
        server_name="127.0.0.1", server_port=port, quiet=True, theme=theme, footer_links=[]
    )
