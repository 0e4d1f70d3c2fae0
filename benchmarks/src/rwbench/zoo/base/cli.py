"""`rwbench base`: train the small base, see what it can do, put it into a model folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli.shared import JsonFlag, user_errors

app = typer.Typer(
    help="Train the bundled base model, and measure what it can do.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Recipe = Annotated[Path, typer.Argument(help="A recipe, such as benchmarks/base/cpu.toml.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads; one gives the same weights every time.")]


@app.command()
def train(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    start: Annotated[Path | None, typer.Option(help="A shipped base whose weights come first.")] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Stop after this long; 0: at the recipe's end.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    processes: Annotated[int, typer.Option(min=0, help="Processes that make data ahead of time.")] = 0,
    threads: Threads = 1,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Fuse the passes first.")] = True,
) -> None:
    """Train a base, or go on with a training; Ctrl-C and kill cost two minutes at most.

    Example: rwbench base train benchmarks/base/cpu.toml --out runs/base
    """
    import torch

    from .recipe import read_recipe
    from .tokenizer import build_vocabulary, corpus
    from .train import BaseTrainer

    torch.set_num_threads(threads)
    with user_errors():
        plan = read_recipe(recipe)
        trainer = BaseTrainer(plan, build_vocabulary(corpus()), out, device, processes, compiled, start)
        resumed = trainer.resume()
    done = trainer.position["tokens"] / 1e6
    typer.echo(f"{plan.name}: {plan.tokens / 1e6:.0f} M tokens at most, {done:.1f} M done", err=True)
    if not resumed and compiled:
        typer.echo("compiling first: a minute or two", err=True)
    finished = trainer.run(60 * minutes or math.inf, report=lambda line: typer.echo(line, err=True))
    typer.echo(f"{'finished' if finished else 'stopped'}: {out}")
    if finished:
        typer.echo(f"next: rwbench base gates {recipe} --out {out}")


@app.command()
def gates(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Folder of the training.")],
    questions: Annotated[int, typer.Option(min=1, help="Questions per sub-task.")] = 100,
    lists: Annotated[int, typer.Option(min=1, help="Lists per rule type and length.")] = 16,
    threads: Threads = 1,
    as_json: JsonFlag = False,
) -> None:
    """Measure what a base can do: lookups in lists, questions with their rules alone, with others beside them.

    Example: rwbench base gates benchmarks/base/cpu.toml --out runs/base
    """
    import dataclasses

    import torch

    from .documents import Writer
    from .gates import gate_table, run_gates
    from .recipe import read_recipe
    from .tokenizer import build_vocabulary, corpus
    from .train import trained_base

    torch.set_num_threads(threads)
    with user_errors():
        plan, vocabulary = read_recipe(recipe), build_vocabulary(corpus())
        model, _ = trained_base(plan, vocabulary, out)
    cells = []
    for cell in run_gates(model, Writer(vocabulary, plan.context_weight), lists, questions):
        cells.append(cell)
        typer.echo(
            f"{cell.gate:<12} {cell.kind:<16} {cell.representation:<3} {cell.rules:>3} rules: "
            f"{cell.success:.3f} of {cell.n} (chance {cell.chance:.3f})",
            err=True,
        )
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(cell) for cell in cells]))
    else:
        typer.echo(gate_table(cells))


@app.command()
def ship(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Folder of the training.")],
    to: Annotated[Path, typer.Option(help="Folder of the model; it is replaced.")],
    questions: Annotated[int, typer.Option(min=1, help="Questions per sub-task for the card.")] = 100,
    lists: Annotated[int, typer.Option(min=1, help="Lists per rule type and length for the card.")] = 16,
    threads: Threads = 1,
) -> None:
    """Write a trained base as transformers loads it, with a card of what it can do; say how far it is from the shipped.

    Example: rwbench base ship benchmarks/base/cpu.toml --out runs/base --to models/mine/base
    """
    import torch

    from ..models.comparison import compare_base
    from .recipe import read_recipe
    from .ship import write_base
    from .tokenizer import build_vocabulary, corpus

    torch.set_num_threads(threads)
    with user_errors():
        plan = read_recipe(recipe)
        written: dict[str, Any] = write_base(plan, build_vocabulary(corpus()), out, to, questions, lists)
    for name, size in written.items():
        typer.echo(f"{to / name}  {size / 2**20:.1f} MiB")
    typer.echo("\n".join(compare_base(to)))
