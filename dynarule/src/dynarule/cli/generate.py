"""``dynarule generate`` and ``dynarule serve``: answers to questions, and rule books behind OpenAI's protocol."""

from __future__ import annotations

import json
import os
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._lazy import need
from ..books.questions import read_rows
from . import shared
from .loading import Served, load_rules, rule_encoder, warn_of_unknown
from .shared import grouped, note, one_line, say

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..generation import Generation
    from ..memory.serving import Retrieval


@grouped
def generate(
    served: Served,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="May be given several times.")
    ] = None,
    questions: shared.QuestionsOption = None,
    max_new_tokens: shared.MaxNewTokensOption = 256,
    max_searches: Annotated[int, typer.Option("--max-searches", min=0, help="<search> per answer.")] = 16,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.01, help="Sample.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of sampling.")] = 0,
    batch_size: shared.BatchSizeOption = 8,
    trace: Annotated[bool, typer.Option("--trace", help="Show the rules read at each step.")] = False,
    top: shared.TopOption = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Answer questions with rules.

    Example: dynarule generate --model MODEL --adapter adapter --rules rules.txt -q "If a tiny cat ..." --trace
    """
    texts = [*(question or []), *([row["question"] for row in read_rows(questions)] if questions else [])]
    if not texts:
        raise ValueError("no question; give --question TEXT, or --questions FILE")
    base, tokenizer, bank = served.load()
    warn_of_unknown(tokenizer, texts)
    import torch

    from ..generation import generate as run
    from ..memory.serving import one_a_step
    from ..tokenizer import question_prompts

    torch.manual_seed(seed)
    sampling: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    asked, results = iter(texts), list[dict[str, Any]]()

    def show(answer: Generation) -> None:
        text = next(asked)
        if as_json:
            searches = {"trace": [_json_search(search, top) for search in answer.trace]} if trace else {}
            results.append({"question": text, "answer": answer.text, **searches})
            return
        if len(texts) > 1:
            say(one_line(f"# {text}"))
        say(answer.text.strip())
        shown: set[str] = set()
        for search in one_a_step(answer.trace) if trace else ():
            _say_search(search, bank, top, shown)

    prompts = question_prompts(tokenizer, texts, base.active_peft_config.question_opening)
    sampling |= {"max_new_tokens": max_new_tokens, "max_searches": max_searches, "batch_size": batch_size}
    run(base, tokenizer, bank, prompts, on_answer=show, **sampling)
    if as_json:
        say(json.dumps({"answers": results}, indent=1, ensure_ascii=False))


def _json_search(search: Retrieval, top: int) -> dict[str, Any]:
    values: dict[str, Any] = {"step": search.step, "layer": search.layer, "ids": search.ids[:top]}
    values |= {"rules": search.texts[:top], "scores": search.scores[:top]}
    if hasattr(search, "way"):  # of DynaRule+
        values["way"] = search.way
    return values


def _say_search(search: Retrieval, bank: RuleBank, top: int, shown: set[str]) -> None:
    """Show one search; the text of a rule that is among those ``shown`` is not said again."""
    say(f"  step {search.step}, layer {search.layer}")
    scored = [(f"{score:7.3f}", name) for name, score in zip(search.ids, search.scores, strict=True)]
    for before, name in [*scored[:top], *(("   then", name) for name in getattr(search, "way", ()))]:
        rule = "" if name in shown else f" {one_line(bank.texts[bank.row(name)])}"
        shown.add(name)
        say(f"    {before}  [{one_line(name)}]{rule}")


@grouped
def serve(
    served: Served,
    book: Annotated[
        list[str] | None,
        typer.Option("--book", help="A further book, NAME=RULES; a request names it as its model."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", help="What clients must send.", show_default="$DYNARULE_API_KEY, or none"),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Answers at once.")] = 16,
    most_tokens: Annotated[int, typer.Option("--most-tokens", min=1, help="Of an answer.")] = 1024,
) -> None:
    """Answer over HTTP, as OpenAI's chat completions and completions, with the rules that each step read.

    Its address opened in a browser is a page to ask on and to change rules.

    Example: dynarule serve --model MODEL --adapter adapter --rules bank
    """
    uvicorn = need("uvicorn", "serve")
    need("fastapi", "serve")
    from ..serve import Book, Engine, make_app

    key = api_key or os.environ.get("DYNARULE_API_KEY")
    if host not in ("127.0.0.1", "localhost") and not key:
        raise ValueError(f"--host {host} is open to others; give --api-key, or listen on 127.0.0.1")
    places = {served.rules.resolve().stem: served.rules}
    for pair in book or ():
        name, equals, place = pair.partition("=")
        if not equals or not name or name in places:
            raise ValueError(f"--book {pair}: expected NAME=RULES, with a name of its own")
        places[name] = Path(place)
    model, tokenizer, bank = served.load()
    like, parts = model.active_peft_config.encoder, {"model": model, "tokenizer": tokenizer}
    books = []
    for name, path in places.items():
        rules = bank if path is served.rules else load_rules(path, served.encoder, like, **parts)
        encoder = cache(partial(rule_encoder, served.encoder, like=rules.encoder, **parts))
        books.append(Book(name, rules.to(bank.device, bank.dtype), path, encoder))
        note(f"{name}: {len(rules):,} rules")
    engine = Engine(model, tokenizer, books, batch_size=batch_size, most_tokens=most_tokens)
    note(f"listening on http://{host}:{port} (a page; clients: /v1), Ctrl-C ends it")
    try:
        uvicorn.run(make_app(engine, key), host=host, port=port, log_level="warning")
    finally:
        engine.close()
