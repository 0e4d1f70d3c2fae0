"""The command ``dynarule``: answer with rules, train, measure the confidence layer, keep banks, see an example."""

from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .bank import app as bank
from .bank import books as book
from .generate import generate, serve
from .inspect import confidence, inspect, support
from .shared import Commands, note, say
from .train import train

app = typer.Typer(
    cls=Commands,
    name="dynarule",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"dynarule {__version__}")
        raise typer.Exit


@app.callback()
def _dynarule(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """DynaRule: rules as memory inside a frozen language model."""


def example(
    folder: Annotated[Path, typer.Argument(help="New folder.", show_default=False)],
    book: Annotated[
        str | None, typer.Option("--book", help="library: a rule book in plain English, no model.")
    ] = None,
) -> None:
    """Write rules, questions and a small random model, to try the other commands on; or a rule book and its questions.

    Example: dynarule example depot
    """
    from ..example import write_example
    from .loading import quiet_libraries

    quiet_libraries()
    write_example(folder, book=book)
    written = "rules.txt, questions.jsonl" if book else "rules.txt, train.jsonl, held_out.jsonl, model"
    note(f"wrote {folder}: {written}")


for command in (generate, serve, train, confidence, support, inspect, example):
    app.command()(command)
app.add_typer(bank, name="bank")
app.add_typer(book, name="book")
main = app
