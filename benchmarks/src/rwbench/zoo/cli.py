"""`rwbench base`: train the small base, see what it can do, ship it; `rwbench adapters`: train adapters for a base."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cli.shared import user_errors

HELP: dict[str, Any] = {
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
base = typer.Typer(help="Train the bundled base model, and measure what it can do.", **HELP)
models = typer.Typer(help="Models that are not shipped: add one to the cache.", **HELP)
adapters = typer.Typer(help="Train adapters for a base model, all methods alike.", **HELP)
Recipe = Annotated[Path, typer.Argument(help="A recipe, such as benchmarks/base/tiny.toml.")]
Questions = Annotated[int, typer.Option(min=1, help="Questions per sub-task.")]
Lists = Annotated[int, typer.Option(min=1, help="Lists per rule type and length.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads; one gives the same weights every time.")]


@models.callback()
def _models() -> None:
    """Keep `add` a command of its own."""


@models.command("add")
def add(
    source: Annotated[
        str, typer.Argument(help="A known model, such as smollm2, a .gguf file, or a LoRA's folder.")
    ],
    name: Annotated[str | None, typer.Option(help="What --model calls it; default: its own name.")] = None,
) -> None:
    """Convert a model once into the cache; nothing is downloaded or installed.

    Example: rwbench models add smollm2
    """
    with user_errors():
        from ..models.added import add_model

        folder = add_model(source, name)
    typer.echo(f"wrote {folder}")
    typer.echo(f"next: rwbench run smoke --model {folder.name}")


@base.command("train")
def train_base(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    minutes: Annotated[float, typer.Option(min=0, help="Stop after this long; 0: at the recipe's end.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    processes: Annotated[int, typer.Option(min=0, help="Processes that make data ahead of time.")] = 0,
    threads: Threads = 1,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Fuse the passes first.")] = True,
) -> None:
    """Train a base, or go on with a training; Ctrl-C and kill cost two minutes at most.

    Example: rwbench base train benchmarks/base/tiny.toml --out runs/base
    """
    import torch

    from .base.lora import LoraTrainer
    from .base.recipe import read_recipe
    from .base.tokenizer import build_vocabulary, corpus
    from .base.train import BaseTrainer

    torch.set_num_threads(threads)
    with user_errors():
        plan = read_recipe(recipe)
        kind = LoraTrainer if plan.lora else BaseTrainer
        vocabulary = None if plan.lora else build_vocabulary(corpus())
        trainer = kind(plan, vocabulary, out, device, processes, compiled)
        done = trainer.position["tokens"] / 1e6
        typer.echo(f"{plan.name}: {plan.tokens / 1e6:.0f} M tokens at most, {done:.1f} M done", err=True)
        if not trainer.resumed and compiled and trainer.fuses:
            typer.echo("compiling first: a minute or two", err=True)
        finished = trainer.run(60 * minutes or math.inf, report=_to_stderr)
    typer.echo(f"{'finished' if finished else 'stopped'}: {out}")
    if finished:
        typer.echo(f"next: rwbench base ship {recipe} --out {out} --to FOLDER")


@base.command()
def ship(
    recipe: Recipe,
    out: Annotated[Path, typer.Option(help="Folder of the training.")],
    to: Annotated[Path, typer.Option(help="Folder of the model; it is replaced.")],
    questions: Questions = 100,
    lists: Lists = 16,
    threads: Threads = 1,
) -> None:
    """Write a trained base as transformers loads it, with a card of what it can do.

    Example: rwbench base ship benchmarks/base/tiny.toml --out runs/base --to models/mine/base
    """
    import torch

    from .base.recipe import read_recipe
    from .base.ship import write_base, write_lora
    from .base.tokenizer import build_vocabulary, corpus

    torch.set_num_threads(threads)
    with user_errors():
        plan = read_recipe(recipe)
        if plan.lora:
            written = write_lora(plan, out, to)
        else:
            written = write_base(plan, build_vocabulary(corpus()), out, to, questions, lists, _to_stderr)
    for name, size in written.items():
        typer.echo(f"{to / name}  {size / 2**20:.1f} MiB")
    if plan.lora:
        typer.echo(f"next: rwbench models add {to}")


@base.command()
def gates(
    folder: Annotated[Path, typer.Argument(help="A base as `rwbench base ship` writes it.")],
    questions: Questions = 100,
    lists: Lists = 16,
    threads: Threads = 1,
) -> None:
    """Measure a base: lookups in lists, questions with their rules alone, with others beside them; renew its card.

    Example: rwbench base gates models/mine/base
    """
    import torch

    from .base.ship import write_card

    torch.set_num_threads(threads)
    with user_errors():
        write_card(folder, questions, lists, _to_stderr)
    typer.echo(f"wrote {folder / 'gates.json'} and {folder / 'README.md'}")


def _to_stderr(line: object) -> None:
    typer.echo(line, err=True)


@adapters.command("train")
def train_adapters(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as benchmarks/adapters/dynarule.toml.")],
    method: Annotated[str, typer.Option(help="dynarule, srki, kblam or dynarule-plus.")],
    representation: Annotated[str, typer.Option(help="fol or nl.")],
    out: Annotated[Path, typer.Option(help="Folder of the training; the adapter is in its adapter/.")],
    model: Annotated[str, typer.Option(help="A shipped model's name, or a folder.")] = "tiny",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Another training of the recipe: first weights, batches, pools.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Another encoder of the rules than the recipe's, such as minilm+premise."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
) -> None:
    """Train one adapter, stage by stage; killed, it goes on with --resume.

    Example: rwbench adapters train benchmarks/adapters/dynarule.toml --method dynarule --representation nl --out nl
    """
    with user_errors():
        import torch

        from .adapters.recipe import read_recipe
        from .adapters.train import train_adapter

        torch.set_num_threads(threads)
        plan = read_recipe(recipe)
        plan = plan if seed is None else replace(plan, training_seed=seed)
        plan = plan if encoder is None else replace(plan, encoder=encoder)
        folder = train_adapter(plan, model, method, representation, out, resume)
    typer.echo(f"wrote {folder}")
