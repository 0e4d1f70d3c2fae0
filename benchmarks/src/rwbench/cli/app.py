"""`rwbench`: run recipes, list what there is, write reports. Heavy imports wait until a command needs them."""

import json
import os
import sys
from typing import Annotated

import typer

from .. import __version__
from ..efficiency.cli import efficiency
from ..leaderboard.cli import app as leaderboard
from .models import book, models
from .report import compare, report
from .run import run
from .shared import BenchCommands, JsonFlag, printable
from .trace import trace

app = typer.Typer(
    cls=BenchCommands,
    help="Every RuleWorld method side by side. Start with: rwbench run smoke",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rwbench {__version__}")
        raise typer.Exit


@app.callback()
def rwbench(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read the options that stand before a command."""


def list_names(as_json: JsonFlag = False) -> None:
    """List recipes, methods, retrievers, backends and shipped models.

    Example: rwbench list
    """
    from ..backends import Backend
    from ..methods import Method
    from ..models import added_models, shipped
    from ..recipes import recipes
    from ..retrievers import Retriever

    groups = {"recipes": {name: made.help for name, made in recipes.items().items()}}
    for kind, family in (("methods", Method), ("retrievers", Retriever), ("backends", Backend)):
        entries: dict[str, type] = family.registry.items()
        groups[kind] = {name: (entry.__doc__ or "").strip().split("\n")[0] for name, entry in entries.items()}
    groups["models"] = dict.fromkeys(shipped(), "shipped with this package")
    groups["models"] |= dict.fromkeys(added_models(), "added to the cache")
    if as_json:
        typer.echo(json.dumps(groups))
        return
    for title, texts in groups.items():
        typer.echo(f"{title}:")
        for name, text in texts.items():
            typer.echo(f"  {name:<20} {text}")


for command in (run, report, compare, trace, book, efficiency):
    app.command()(command)
app.command("list")(list_names)
app.add_typer(models, name="models")
app.add_typer(leaderboard)


def main() -> None:
    """Entry point of the `rwbench` command."""
    try:
        app()
    except OSError as error:
        # Most likely of stdout, which Python would try to write once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(f"error: {printable(str(error))}")
