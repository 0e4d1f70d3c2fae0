"""`rwbench adapters`: train DynaRule, SR-KI and KBLaM adapters for a base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli.shared import user_errors

app = typer.Typer(
    help="Train adapters for a base model, all methods alike.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as benchmarks/adapters/cpu.toml.")],
    method: Annotated[str, typer.Option(help="dynarule, srki or kblam.")],
    representation: Annotated[str, typer.Option(help="fol or nl.")],
    out: Annotated[Path, typer.Option(help="Folder of the training; the adapter is in its adapter/.")],
    model: Annotated[str, typer.Option(help="A shipped model's name, or a folder.")] = "tiny",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
) -> None:
    """Train one adapter, stage by stage; killed, it goes on with --resume. Then say how far it is from the shipped one.

    Example: rwbench adapters train benchmarks/adapters/cpu.toml --method dynarule --representation nl --out runs/nl
    """
    with user_errors():
        import torch

        from ..models.comparison import compare_adapter
        from .recipe import read_recipe
        from .train import train_adapter

        torch.set_num_threads(threads)
        try:
            folder = train_adapter(read_recipe(recipe), model, method, representation, out, resume)
        except FileExistsError as error:
            raise ValueError(str(error)) from None
    typer.echo("\n".join([f"wrote {folder}", *compare_adapter(folder, method, representation)]))
