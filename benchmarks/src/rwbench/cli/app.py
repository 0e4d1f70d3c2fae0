"""`rwbench`: run recipes, list what there is, write reports. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import re

import typer

from ..efficiency.cli import app as efficiency
from ..leaderboard.cli import app as leaderboard
from ..zoo.adapters.cli import app as adapters
from ..zoo.base.cli import app as base
from .book import book
from .compare import compare
from .report import report
from .run import resume, run
from .shared import JsonFlag
from .trace import trace

app = typer.Typer(
    help="Every RuleWorld method side by side. Start with: rwbench run smoke",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(efficiency, name="efficiency")
app.add_typer(base, name="base")
app.add_typer(adapters, name="adapters")


app.command()(run)
app.command()(resume)
app.command()(trace)
app.command()(book)


@app.command("list")
def list_names(as_json: JsonFlag = False) -> None:
    """List recipes, methods, retrievers, backends and shipped models.

    Example: rwbench list
    """
    from ..backends import Backend
    from ..methods import Method
    from ..recipes import recipes
    from ..retrievers import Retriever
    from ..zoo.models import shipped

    groups: dict[str, dict[str, str]] = {
        "recipes": {name: recipes.get(name).help for name in sorted(recipes.items(), key=_in_order)},
        "methods": {name: _summary_line(entry) for name, entry in Method.registry.items().items()},
        "retrievers": {name: _summary_line(entry) for name, entry in Retriever.registry.items().items()},
        "backends": {name: _summary_line(entry) for name, entry in Backend.registry.items().items()},
        "models": dict.fromkeys(shipped(), "shipped with this package"),
    }
    if as_json:
        typer.echo(json.dumps(groups))
        return
    for title, entries in groups.items():
        typer.echo(f"{title}:")
        for name, text in entries.items():
            typer.echo(f"  {name:<20} {text}")


app.command()(report)
app.command()(compare)
app.add_typer(leaderboard)


def _in_order(name: str) -> list[tuple[str, int]]:
    """Sort table10 behind table2."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D+)(\d*)", name)]


def _summary_line(entry: type) -> str:
    return (entry.__doc__ or "").strip().split("\n")[0]


def main() -> None:
    """Entry point of the `rwbench` command."""
    app()


if __name__ == "__main__":
    main()
