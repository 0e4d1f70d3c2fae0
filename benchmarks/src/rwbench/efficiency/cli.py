"""`rwbench efficiency`: serving cost by number of rules."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import user_errors
from .settings import METHODS, RULES, Settings, grid
from .workload import SHAPES

DEFAULT = Settings()

app = typer.Typer(
    help="Latency and memory by number of rules.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def serving(
    shape: Annotated[str, typer.Option(help=f"Model: {', '.join(SHAPES)}.")] = DEFAULT.shape,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = DEFAULT.device,
    dtype: Annotated[str, typer.Option(help="Of the model: fp32, fp16 or bf16.")] = DEFAULT.dtype,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = DEFAULT.threads,
    encoder_dim: Annotated[int, typer.Option(help="P, width of the embeddings.")] = DEFAULT.encoder_dim,
    top_k: Annotated[int, typer.Option(help="K, rules kept per layer.")] = DEFAULT.top_k,
    embeddings: Annotated[str, typer.Option(help="Of rules: fp32 or fp16.")] = DEFAULT.embeddings,
    premises: Annotated[int, typer.Option(min=0, help="Keys that rules share; 0: each its own.")] = 0,
    conclusions: Annotated[int, typer.Option(min=0, help="Values that rules share; 0: each its own.")] = 0,
    repeats: Annotated[int, typer.Option(help="Pairs of base and method, at most.")] = DEFAULT.repeats,
    memory_gb: Annotated[float, typer.Option(help="Rules that need more are not tried.")] = DEFAULT.memory_gb,
    rules: Annotated[str, typer.Option(help="Numbers of rules, separated by commas.")] = ",".join(
        map(str, RULES)
    ),
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(METHODS),
    out: Annotated[Path, typer.Option(help="Folder of results file and table.")] = Path("efficiency"),
) -> None:
    """Measure time to first token, time per token and per search, and peak memory by number of rules.

    Example: rwbench efficiency serving --rules 0,1000
    """
    given = locals()
    with user_errors():
        from ruleworld_data.io import write_whole

        from ..cache import cache_root
        from .serving import measure
        from .tables import serving_markdown

        settings = Settings(
            **{item.name: given[item.name] for item in fields(Settings) if item.name in given}
        )
        if device == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise ValueError("--device cuda: torch sees no GPU here; use --device cpu")
        cells = grid(methods.split(","), [int(count) for count in rules.split(",")])
        if not cells:
            raise ValueError(
                f"--methods {methods} --rules {rules} name nothing to measure; add dynarule, or rules above 0"
            )
        table = measure(
            settings,
            cells,
            out / "serving.json",
            cache_root() / "random",
            lambda line: typer.echo(line, err=True),
        )
        text = serving_markdown(table)
        write_whole(out / "serving.md", text + "\n")
    typer.echo(text)
    if any(cell["status"] == "failed" for cell in table["cells"]):
        raise typer.Exit(1)
