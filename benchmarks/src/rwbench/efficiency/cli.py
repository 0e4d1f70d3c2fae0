"""`rwbench efficiency`: serving cost by number of rules."""

from pathlib import Path
from typing import Annotated

import typer


def efficiency(
    shape: Annotated[str, typer.Option(help="Model: qwen2-0.5b, qwen2.5-7b or tiny.")] = "qwen2-0.5b",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="Of the model: fp32, fp16 or bf16.")] = "fp32",
    encoder_dim: Annotated[int, typer.Option(help="P, width of the embeddings.")] = 384,
    embeddings: Annotated[str, typer.Option(help="Of rules: fp32 or fp16.")] = "fp32",
    premises: Annotated[int, typer.Option(help="Keys that rules share; 0: each its own.")] = 0,
    conclusions: Annotated[int, typer.Option(help="Values that rules share; 0: each its own.")] = 0,
    repeats: Annotated[int, typer.Option(help="Pairs of base and method, at most.")] = 7,
    rules: Annotated[
        str, typer.Option(help="Numbers of rules, separated by commas.")
    ] = "0,100,1000,10000,100000,1000000",
    methods: Annotated[str, typer.Option(help="Separated by commas.", show_default="all")] = "",
    out: Annotated[Path, typer.Option(help="Folder of results file and table.")] = Path("efficiency"),
) -> None:
    """Measure time to first token, time per token and per search, and peak memory by number of rules.

    Example: rwbench efficiency --rules 0,1000
    """
    given = locals()
    from ruleworld_data.io import write_whole
    from ruleworld_data.spec import check_name

    from .methods import METHODS
    from .serving import measure, serving_markdown
    from .workload import Settings

    names = Settings.__dataclass_fields__.keys() & given.keys()
    settings = Settings(**{name: given[name] for name in names})
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no GPU here; use --device cpu")
    chosen = [check_name("method", name, METHODS) for name in methods.split(",")] if methods else METHODS
    counts = [int(count) for count in rules.split(",")]
    # Without rules only DynaRule is another model than the base.
    cells = [(name, count) for name in chosen for count in counts if count > 0 or name == "dynarule"]
    if not cells or min(counts) < 0:
        raise ValueError(f"--methods {methods} --rules {rules} name nothing to measure; add dynarule")
    table = measure(settings, cells, out / "serving.json", lambda line: typer.echo(line, err=True))
    text = serving_markdown(table)
    write_whole(out / "serving.md", text + "\n")
    typer.echo(text)
    if any(cell["status"] == "failed" for cell in table["cells"]):
        raise typer.Exit(1)
