"""``dynarule ui``: a rule book and its model in the browser; each step as it is written, beside the rules it found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from .._lazy import need
from .answer import rule_encoder_of
from .desk import BESIDE, Desk, ShownStep, safe
from .loading import load_all, no_questions
from .shared import (
    AdapterOption,
    DeviceOption,
    EncoderOption,
    FolOption,
    MaxNewTokensOption,
    ModelOption,
    RulesOption,
    message_of,
    note,
)

CSS = """
.rules {max-height: 70vh; overflow-y: auto; font-size: .9rem}
.rules div, .steps div {padding: .2rem .4rem; border-left: .3rem solid transparent; overflow-wrap: anywhere}
.rules .read, .steps .read {border-color: #2f9e44; background: #2f9e4422}
.rules .ahead, .steps .ahead {border-color: #1c7ed6; background: #1c7ed622}
.rules b, .steps b {font-variant-numeric: tabular-nums}
.steps p, .beside p {margin: .3rem 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere}
"""


def page(desk: Desk) -> Any:
    """Return the page as gradio's Blocks."""
    gr = need("gradio", "ui")

    def ask(question: str) -> Iterator[tuple[str, str, str, str]]:
        steps: list[ShownStep] = []
        try:
            for steps in desk.answer(question):
                yield desk.book(steps), desk.written(steps), "", ""
            shown = desk.book(steps), desk.written(steps)
            found = desk.bm25(question)
            searched = _aside(desk.beside(question, found), found)
            yield *shown, searched, ""
            yield *shown, searched, _aside(desk.beside(question))
        except (ValueError, KeyError, ImportError) as error:
            raise gr.Error(message_of(error)) from None

    def edit(change: Callable[[str], None], line: str) -> tuple[str, str]:
        try:
            change(line.strip())
        except (ValueError, KeyError) as error:
            raise gr.Error(message_of(error)) from None
        return desk.book(), ""

    with gr.Blocks(title="dynarule", analytics_enabled=False) as blocks:
        gr.Markdown(
            "## A rule book inside a language model\nThe rules are no part of the prompt. At every step the model "
            "looks for those it needs: **green** is what it read, **blue** what it looked ahead to, with the number of "
            "the step."
        )
        with gr.Row():
            with gr.Column(scale=2):
                book = gr.HTML(desk.book())
                new = gr.Textbox(label="Add a rule", placeholder="If A is in the attic, A will be dizzy.")
                old = gr.Textbox(label="Remove a rule", placeholder="its number")
            with gr.Column(scale=3):
                question = gr.Textbox(label="Question", lines=2)
                button = gr.Button("Ask", variant="primary")
                written = gr.HTML(label="Answer")
                with gr.Row():
                    with gr.Column():
                        gr.Markdown(f"**The same question, BM25's {BESIDE} rules in the prompt**")
                        searched = gr.HTML()
                    with gr.Column():
                        gr.Markdown("**And with nothing beside it**")
                        alone = gr.HTML()
        # One model and one book: one thing at a time.
        turn = {"concurrency_limit": 1, "concurrency_id": "book", "api_visibility": "private"}
        for event in (button.click, question.submit):
            event(ask, question, [book, written, searched, alone], **turn)
        for box, change in ((new, desk.add), (old, desk.remove)):
            box.submit(partial(edit, change), box, [book, box], **turn)
    return blocks


def _aside(text: str, rules: Sequence[str] = ()) -> str:
    listed = "".join(f"<li>{safe(rule)}</li>" for rule in rules)
    listed = f"<details><summary>{len(rules)} rules</summary><ul>{listed}</ul></details>" if rules else ""
    return f'<div class="beside"><p>{safe(text)}</p>{listed}</div>'


def ui(
    model: ModelOption,
    adapter: AdapterOption,
    rules: RulesOption,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    max_new_tokens: MaxNewTokensOption = 256,
    top: Annotated[int, typer.Option("--top", min=1, help="Rules marked per step.")] = 2,
    port: Annotated[int, typer.Option("--port", min=1, help="Of this machine.")] = 7860,
    device: DeviceOption = None,
) -> None:
    """Ask a rule book in the browser: each step as it is written, what it found, and the model without it.

    Whoever opens the page sees the same book and may change it. Example: dynarule ui --model MODEL --adapter adapter
    --rules rules.txt
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = need("gradio", "ui")
    with no_questions():
        base, tokenizer, bank = load_all(model, adapter, rules, encoder, fol, device)
    desk = Desk(
        base, tokenizer, bank, rule_encoder_of(bank, base, tokenizer, encoder, fol), max_new_tokens, top
    )
    fonts = {
        "font": ["system-ui", "sans-serif"],
        "font_mono": ["ui-monospace", "monospace"],
    }  # none from elsewhere
    note(f"{len(bank):,} rules; the page is at http://127.0.0.1:{port}, Ctrl-C ends it")
    page(desk).launch(
        server_name="127.0.0.1",
        server_port=port,
        quiet=True,
        theme=gr.themes.Base(**fonts),
        css=CSS,
        footer_links=[],
    )
