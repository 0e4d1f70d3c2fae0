"""`rwbench efficiency`: serving cost by number of rules, cost of training steps, recall of indexes."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cli.shared import JsonFlag, user_errors
from .plan import METHODS, RULES, Settings

DEFAULT: dict[str, Any] = {f.name: f.default for f in fields(Settings)}
HELP: dict[str, str] = {f.name: f.metadata["help"] for f in fields(Settings)}
Out = Annotated[Path, typer.Option(help="Folder of the results file, table and figure.")]

app = typer.Typer(
    help="Latency, memory and training steps by number of rules; recall of indexes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def serving(
    rules: Annotated[str, typer.Option(help="Numbers of rules, separated by commas.")] = ",".join(
        map(str, RULES)
    ),
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(METHODS),
    shape: Annotated[str, typer.Option(help=HELP["shape"])] = DEFAULT["shape"],
    device: Annotated[str, typer.Option(help=HELP["device"])] = DEFAULT["device"],
    dtype: Annotated[str, typer.Option(help=HELP["dtype"])] = DEFAULT["dtype"],
    threads: Annotated[int, typer.Option(help=HELP["threads"])] = DEFAULT["threads"],
    encoder_dim: Annotated[int, typer.Option(help=HELP["encoder_dim"])] = DEFAULT["encoder_dim"],
    embeddings: Annotated[str, typer.Option(help=HELP["embeddings"])] = DEFAULT["embeddings"],
    top_k: Annotated[int, typer.Option(help=HELP["top_k"])] = DEFAULT["top_k"],
    prompt_tokens: Annotated[int, typer.Option(help=HELP["prompt_tokens"])] = DEFAULT["prompt_tokens"],
    new_tokens: Annotated[int, typer.Option(help=HELP["new_tokens"])] = DEFAULT["new_tokens"],
    repeats: Annotated[int, typer.Option(help=HELP["repeats"])] = DEFAULT["repeats"],
    cell_seconds: Annotated[float, typer.Option(help=HELP["cell_seconds"])] = DEFAULT["cell_seconds"],
    tokens_per_rule: Annotated[int, typer.Option(help=HELP["tokens_per_rule"])] = DEFAULT["tokens_per_rule"],
    memory_gb: Annotated[float, typer.Option(help=HELP["memory_gb"])] = DEFAULT["memory_gb"],
    seed: Annotated[int, typer.Option(help=HELP["seed"])] = DEFAULT["seed"],
    out: Out = Path("efficiency"),
    as_json: JsonFlag = False,
) -> None:
    """Measure time to first token, time per token, selection and peak memory by number of rules.

    Running it again takes up where it stopped. Example: rwbench efficiency serving --rules 0,1000
    """
    from ..cache import cache_root
    from ..run.progress import Progress
    from .figure import draw
    from .plan import grid
    from .session import measure, write_table
    from .tables import serving_markdown, targets

    values = locals()
    with user_errors():
        settings = Settings(**{name: values[name] for name in DEFAULT})
        _check_device(device)
        cells = grid(_words(methods), _numbers(rules))
        if not cells:
            raise ValueError(
                f"--methods {methods} --rules {rules} name nothing to measure; add dynarule, or rules above 0"
            )
        progress = Progress(len(cells))
        table = measure(settings, cells, out, cache_root() / "random", progress)
    progress.close()
    table["targets"] = targets(table)
    write_table(out / "serving.json", table)
    text = serving_markdown(table)
    _write(out / "serving.md", text)
    if any(cell["status"] == "ok" and cell["rules"] for cell in table["cells"]):
        draw(table, out / "serving.svg")
    _finish(table, text, as_json)


@app.command()
def training(
    shape: Annotated[str, typer.Option(help=HELP["shape"])] = "small",
    device: Annotated[str, typer.Option(help=HELP["device"])] = "cpu",
    dtype: Annotated[str, typer.Option(help=HELP["dtype"])] = "fp32",
    rules: Annotated[int, typer.Option(help="M, rules of the batch's pool")] = 1_000,
    top_k: Annotated[int, typer.Option(help=HELP["top_k"])] = 100,
    encoder_dim: Annotated[int, typer.Option(help=HELP["encoder_dim"])] = 384,
    batch: Annotated[int, typer.Option(help="questions per batch")] = 10,
    tokens: Annotated[int, typer.Option(help="length of a sequence")] = 245,
    repeats: Annotated[int, typer.Option(help="pairs of batches without and with rules")] = 5,
    threads: Annotated[int, typer.Option(help=HELP["threads"])] = 1,
    seed: Annotated[int, typer.Option(help=HELP["seed"])] = 0,
    out: Out = Path("efficiency"),
    as_json: JsonFlag = False,
) -> None:
    """Measure a training step with rules against one without, and where its time goes.

    Example: rwbench efficiency training --repeats 3
    """
    values = locals()
    with user_errors():
        from .session import save
        from .tables import training_markdown
        from .training import TrainingSettings, training_cost

        names = {f.name for f in fields(TrainingSettings)}
        settings = TrainingSettings(**{name: value for name, value in values.items() if name in names})
        _check_device(device)
    table = save(out, "training", settings.to_dict(), training_cost(settings))
    text = training_markdown(table)
    _write(out / "training.md", text)
    typer.echo(json.dumps(table) if as_json else text)


@app.command()
def recall(
    rules: Annotated[int, typer.Option(help="Rules searched; beyond the world's own, drawn.")] = 100_000,
    questions: Annotated[int, typer.Option(help="Held-out questions, asked one at a time.")] = 256,
    scale: Annotated[str, typer.Option(help="World: tiny, paper, full.")] = "paper",
    threads: Annotated[int, typer.Option(help=HELP["threads"])] = 1,
    seed: Annotated[int, typer.Option(help="World seed, and key of what is drawn.")] = 0,
    out: Out = Path("efficiency"),
    as_json: JsonFlag = False,
) -> None:
    """Measure what faiss indexes find of exact search, on RuleWorld through a trained projection.

    The first run embeds the rules, some minutes for 100,000. Example: rwbench efficiency recall --scale tiny
    --rules 2000
    """
    values = locals()
    with user_errors():
        from ..retrievers.dense import Dense, embeddings
        from .recall import RecallSettings, index_recall
        from .session import save
        from .tables import recall_markdown

        missing = Dense().missing()
        if missing:
            raise ValueError(f"this needs the encoder: {missing}")
        names = {f.name for f in fields(RecallSettings)}
        settings = RecallSettings(**{name: value for name, value in values.items() if name in names})
        encode = embeddings("minilm", "document")
        found = index_recall(settings, lambda texts: encode(texts).numpy())
    name = f"recall-{rules}"
    table = save(out, name, settings.to_dict(), found)
    text = recall_markdown(table)
    _write(out / f"{name}.md", text)
    typer.echo(json.dumps(table) if as_json else text)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _numbers(text: str) -> list[int]:
    try:
        return [int(word.replace("_", "")) for word in _words(text)]
    except ValueError:
        raise ValueError(f"--rules must be whole numbers separated by commas, got {text!r}") from None


def _check_device(device: str) -> None:
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no GPU here; use --device cpu")


def _write(path: Path, text: str) -> None:
    from ruleworld_data.io import write_whole

    write_whole(path, (text + "\n").encode())


def _finish(table: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a table and leave with 1 if anything failed."""
    typer.echo(json.dumps(table) if as_json else text)
    if any(cell["status"] == "failed" for cell in table["cells"]):
        raise typer.Exit(1)
