"""What `rwbench`'s commands share: options, and how a user's mistake is reported."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
RunsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of run folders, or one run.")]


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a mistake that the user can correct into one line on stderr and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        from ..spec import in_words

        typer.echo(f"error: {printable(in_words(error))}", err=True)
        raise typer.Exit(2) from None


def disk_error(error: OSError) -> str:
    """Return what is wrong with the disk in words."""
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else printable(str(error))


def printable(text: str) -> str:
    """Return a text whose control characters, which a terminal would obey, are written as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
