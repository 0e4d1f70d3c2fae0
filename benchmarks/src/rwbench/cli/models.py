"""`rwbench models`: models that are not shipped, put into the cache once."""

from __future__ import annotations

from typing import Annotated

import typer

from .shared import user_errors

models = typer.Typer(
    help="Models that are not shipped: add one to the cache.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@models.command("add")
def add(
    source: Annotated[
        str, typer.Argument(help="A known model, such as smollm2, a .gguf file, or a LoRA's folder.")
    ],
    name: Annotated[str | None, typer.Option(help="What --model calls it; default: its own name.")] = None,
) -> None:
    """Convert a model once into the cache; nothing is downloaded or installed.

    Example: rwbench models add smollm2
    """
    with user_errors():
        from ..models import adapter_folder
        from ..models.added import add_model

        folder = add_model(source, name)
        reads = adapter_folder(folder.name, "dynarule-plus", "nl") is not None
    typer.echo(f"wrote {folder}")
    ask = "book my-book" if reads else "run rulebooks --method prompting --limit 1"
    typer.echo(f"next, to ask it: rwbench {ask} --model {folder.name}")
