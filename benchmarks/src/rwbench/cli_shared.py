"""What `rwbench`'s commands share: the --json flag, and how a user's mistake is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what a user can mend into one line on stderr and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
