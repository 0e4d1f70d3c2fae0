"""What `rwbench`'s commands share: options, and how a user's mistake is reported."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ..score.results import Results

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
RunsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of run folders, or one run.")]


class BenchCommands(TyperGroup):
    """Ends with one line on stderr and exit code 2 at a mistake that the user can correct."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (ValueError, FileNotFoundError, FileExistsError) as error:
            from ..spec import in_words

            typer.echo(f"error: {printable(in_words(error))}", err=True)
            raise typer.Exit(2) from None


def printable(text: str) -> str:
    """Return a text whose control characters, which a terminal would obey, are written as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def checked_results(folder: Path) -> "list[Results]":
    """Return the results below a folder, each of which follows from its samples; those without any are named."""
    from ..run.folder import check_follows
    from ..score.results import find_results, find_samples

    for run in (results := find_results(folder)):
        if (samples := find_samples(folder, run["run_id"])) is not None:
            check_follows(run, samples)
        else:
            typer.echo(f"run {run['run_id']} has no samples: its numbers are not checked", err=True)
    return results
