"""What `rwbench`'s commands share: the --json flag, and how a user's mistake is told."""

from __future__ import annotations

import shlex
import sys
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


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn a disk that is full, or may not be written, into one line on stderr and exit code 1."""
    try:
        yield
    except OSError as error:
        typer.echo(stopped(f"error: {disk_error(error)}"), err=True)
        raise typer.Exit(1) from None


def disk_error(error: OSError) -> str:
    """Return what is wrong with the disk in words."""
    from ..run.samples import DISK_FULL

    return "the disk is full" if error.errno in DISK_FULL else str(error)


def stopped(why: str) -> str:
    """Return why a command stopped, and how to go on."""
    return f"{why}; finished samples are kept. To go on: {shlex.join(['rwbench', *sys.argv[1:]])}"
