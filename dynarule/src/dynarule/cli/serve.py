"""``dynarule serve``: rule books behind OpenAI's protocol."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer

from .._lazy import need
from .loading import Served, load_rules, rule_encoder
from .shared import grouped, note


@grouped
def serve(
    served: Served,
    book: Annotated[
        list[str] | None,
        typer.Option(
            "--book", help="A further book, NAME=RULES; a request names the one it asks as its model."
        ),
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
