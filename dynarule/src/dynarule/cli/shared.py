"""What the commands share: options, JSON, and errors of the user as one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
ModelOption = Annotated[
    str, typer.Option("--model", help="Base model: a folder, or a name on the Hub.", show_default=False)
]
AdapterOption = Annotated[Path, typer.Option("--adapter", help="Adapter folder.", show_default=False)]
RulesOption = Annotated[
    Path,
    typer.Option(
        "--rules",
        help="A bank folder, or .parquet, .tsv (rule, tab, conclusion), or text with a rule per line.",
        show_default=False,
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="minilm, a sentence-transformers folder or name, or layers:N, the first N layers of the model.",
        show_default="what adapter or bank were made with, else minilm",
    ),
]
FolOption = Annotated[bool, typer.Option("--fol", help="The rules are logic; encode them as words.")]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, ...", show_default="cuda where there is one"),
]
MaxNewTokensOption = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Length of an answer.")]
BatchSizeOption = Annotated[int, typer.Option("--batch-size", min=1, help="Questions at once.")]
QuestionsOption = Annotated[
    Path | None,
    typer.Option("--questions", help="Text with a question per line, or .jsonl / .parquet with `question`."),
]


class Commands(TyperGroup):
    """Ends with one line on stderr: exit code 2 for what a user can cause, 1 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone, as in `| head`
            raise
        except (ValueError, OSError, ImportError, KeyError) as error:
            note(" ".join(message_of(error).split()))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            note("stopped")
            raise typer.Exit(1) from None


def message_of(error: Exception) -> str:
    """Return the text of an error; that of a KeyError without its quotes."""
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)


def note(line: str) -> None:
    """Write a line to stderr."""
    typer.echo(f"dynarule: {line}", err=True)


def print_json(value: object) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
