"""`rwbench efficiency`: serving cost by number of rules, searches, training steps, recall of indexes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..cli.shared import JsonFlag, user_errors
from .settings import (
    METHODS,
    RULES,
    SEARCHED,
    RecallSettings,
    SearchSettings,
    ServingSettings,
    Settings,
    TrainingSettings,
)

Out = Annotated[Path, typer.Option(help="Folder of the results file, table and figure.")]

app = typer.Typer(
    help="Latency, memory and training steps by number of rules; recall of indexes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def settings_options(kind: type[Settings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every field of a settings class; it gets them as ``settings``, checked."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            with user_errors():
                settings = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
                if settings.device == "cuda":
                    _check_gpu()
                command(settings=settings, **values)

        hints = get_type_hints(kind)
        added = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[hints[each.name], typer.Option(help=each.metadata["help"])],
            )
            for each in fields(kind)
        ]
        own = inspect.signature(command, eval_str=True).parameters.values()
        added += [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name != "settings"
        ]
        run.__signature__ = inspect.Signature(added)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in added}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return wrap


@app.command()
@settings_options(ServingSettings)
def serving(
    settings: ServingSettings,
    rules: Annotated[str, typer.Option(help="Numbers of rules, separated by commas.")] = ",".join(
        map(str, RULES)
    ),
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(METHODS),
    out: Out = Path("efficiency"),
    as_json: JsonFlag = False,
) -> None:
    """Measure time to first token, time per token, selection and peak memory by number of rules.

    Running it again takes up where it stopped. Example: rwbench efficiency serving --rules 0,1000
    """
    from ruleworld_data.io import Progress

    from ..cache import cache_root
    from .figure import draw
    from .serving import measure
    from .settings import grid
    from .tables import serving_markdown, targets

    cells = grid(_words(methods), _numbers(rules))
    if not cells:
        raise ValueError(
            f"--methods {methods} --rules {rules} name nothing to measure; add dynarule, or rules above 0"
        )
    progress = Progress("cells", len(cells))
    table = measure(settings, cells, out, cache_root() / "random", progress)
    progress.close()
    table["targets"] = targets(table)
    if any(cell["status"] == "ok" and cell["rules"] for cell in table["cells"]):
        draw(table, out / "serving.svg")
    _finish(table, serving_markdown(table), out / "serving", as_json)
    if any(cell["status"] == "failed" for cell in table["cells"]):
        raise typer.Exit(1)


@app.command()
@settings_options(TrainingSettings)
def training(settings: TrainingSettings, out: Out = Path("efficiency"), as_json: JsonFlag = False) -> None:
    """Measure a training step with rules against one without, and where its time goes.

    Example: rwbench efficiency training --repeats 3
    """
    from .results_file import new_table
    from .tables import training_markdown
    from .training import training_cost

    table = new_table("training", settings, training_cost(settings))
    _finish(table, training_markdown(table), out / "training", as_json)


@app.command()
@settings_options(RecallSettings)
def recall(settings: RecallSettings, out: Out = Path("efficiency"), as_json: JsonFlag = False) -> None:
    """Measure what faiss indexes find of exact search, on RuleWorld through a trained projection.

    The first run embeds the rules, some minutes for 100,000. Example: rwbench efficiency recall --scale tiny
    --rules 2000
    """
    from ..retrievers.dense import Dense, embeddings
    from .recall import index_recall
    from .results_file import new_table
    from .tables import recall_markdown

    if missing := Dense().missing():
        raise ValueError(f"this needs the encoder: {missing}")
    encode = embeddings("minilm", "document")
    name = f"recall-{settings.rules}"
    table = new_table(name, settings, index_recall(settings, lambda texts: encode(texts).numpy()))
    _finish(table, recall_markdown(table), out / name, as_json)


@app.command()
@settings_options(SearchSettings)
def search(
    settings: SearchSettings,
    rules: Annotated[str, typer.Option(help="Numbers of rules, separated by commas.")] = ",".join(
        map(str, SEARCHED)
    ),
    out: Out = Path("efficiency"),
    as_json: JsonFlag = False,
) -> None:
    """Measure one exact search by number of rules, to all 4.94 million, and how its time grows.

    Example: rwbench efficiency search --rules 100,1000,10000
    """
    from ..cache import cache_root
    from .figure import draw_search
    from .results_file import new_table
    from .search import search_times
    from .tables import search_markdown

    counts = _numbers(rules)
    if not counts or min(counts) < 1:
        raise ValueError(f"--rules must name numbers of 1 or more, got {rules!r}")
    table = new_table("search", settings, search_times(settings, counts, cache_root() / "random"))
    out.mkdir(parents=True, exist_ok=True)
    draw_search(table, out / "search.svg")
    _finish(table, search_markdown(table), out / "search", as_json)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _numbers(text: str) -> list[int]:
    try:
        return [int(word.replace("_", "")) for word in _words(text)]
    except ValueError:
        raise ValueError(f"--rules must be whole numbers separated by commas, got {text!r}") from None


def _check_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no GPU here; use --device cpu")


def _finish(table: dict[str, Any], text: str, path: Path, as_json: bool) -> None:
    """Write a table as JSON and Markdown, and print one of them."""
    from ruleworld_data.io import write_whole

    from .results_file import write_table

    write_table(path.with_suffix(".json"), table)
    write_whole(path.with_suffix(".md"), text + "\n")
    typer.echo(json.dumps(table) if as_json else text)
