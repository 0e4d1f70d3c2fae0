"""What the commands share: options, JSON, and errors of the user as one line."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ..bank.sources import Rules

# control characters but tab and line feed, those that turn the direction of writing, and those that nobody sees, in
# which a rule can hide a second text: Unicode's Default_Ignorable_Code_Point, of variation selectors two or more
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2,}"
)

ModelOption = Annotated[
    str, typer.Option("--model", help="Base model: a folder, or a name on the Hub.", show_default=False)
]
AdapterOption = Annotated[Path, typer.Option("--adapter", help="Adapter folder.", show_default=False)]
RulesOption = Annotated[
    Path,
    typer.Option(
        "--rules",
        help="A bank folder, or .parquet, .csv, .tsv, or text with a rule per line.",
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
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, ...", show_default="cuda where there is one"),
]
MinSupportOption = Annotated[
    float | None,
    typer.Option(
        "--min-support",
        min=0.0,
        max=1.0,
        help="Answer that no rule says so where a search's support is less; `dynarule support` measures it.",
        show_default="what `dynarule support` stored, else 0: always answers",
    ),
]
MaxNewTokensOption = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Length of an answer.")]
BatchSizeOption = Annotated[int, typer.Option("--batch-size", min=1, help="Questions at once.")]
TopOption = Annotated[int, typer.Option("--top", min=1, help="Rules shown per step.")]
QuestionsOption = Annotated[
    Path | None,
    typer.Option("--questions", help="Text with a question per line, or .jsonl / .parquet with `question`."),
]


class Commands(TyperGroup):
    """Ends with one line on stderr: exit code 2 for what a user can cause, 1 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        show = warnings.showwarning

        def note_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
            note(str(message)) if category is UserWarning else show(message, category, *where, **more)

        try:
            with warnings.catch_warnings():
                warnings.showwarning = note_warning
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone, as in `| head`
            raise
        except (ValueError, OSError, ImportError, KeyError, RecursionError) as error:
            # a KeyError's text is in quotes
            text = error.args[0] if isinstance(error, KeyError) and error.args else error
            note(" ".join(str(text).split()))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            note("stopped")
            raise typer.Exit(1) from None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in dataclasses, which typer does not know: it sees their fields, in their place."""
    groups: dict[str, type] = {}
    options: list[Parameter] = []
    for parameter in signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation  # type: ignore[assignment]
            options += signature(parameter.annotation, eval_str=True).parameters.values()  # type: ignore[arg-type]
        else:
            options.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    options = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def say(line: str) -> None:
    """Write a line to stdout."""
    typer.echo(printable(line))


def note(line: str) -> None:
    """Write a line to stderr."""
    typer.echo(f"dynarule: {printable(line)}", err=True)


def one_line(text: str) -> str:
    """Return `printable` text on one line: a rule must not look like a line of ours."""
    return printable(text).replace("\n", "\\u000a")


def printable(text: str) -> str:
    """Return a text with what would steer a terminal, or be seen by nobody, as escapes, which JSON reads back."""

    def escaped(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    return _CONTROL.sub(escaped, text)


def note_parts(rules: Rules) -> None:
    """Say which premises that a person gave are not in their rules: of a rule that was edited, they may be old."""
    away = [
        name
        for name, text, given in zip(rules.ids, rules.texts, rules.premises, strict=False)
        if given and not {*re.findall(r"\w+", given)} <= {*re.findall(r"\w+", text)}
    ]
    if away:
        note(
            f"{len(away)} of {len(rules.texts)} rules have a premise in other words than the text, such as {away[0]}; "
            "clear that cell to have it found in the rule"
        )


def note_unseen(what: str, texts: Sequence[str]) -> None:
    """Say which texts hold characters that `printable` escapes: a model reads what their reader does not see."""
    # Half a surrogate pair is refused where the text is read.
    if hiding := [t for t in texts if any(not "\ud800" <= sign <= "\udfff" for sign in _CONTROL.findall(t))]:
        note(f"{len(hiding)} of {len(texts)} {what} hold characters nobody sees: {one_line(hiding[0][:200])}")


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what draws a bar on stderr, given how much is done and the total."""
    from tqdm import tqdm

    seconds = 1 if sys.stderr.isatty() else 60  # a log gets a line a minute
    with tqdm(unit=f" {unit}", desc="dynarule", mininterval=seconds, delay=seconds, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
