"""`rwbench models` puts a model into the cache once, `rwbench book` writes a folder to ask one of."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

models = typer.Typer(help="Models that are not shipped: add one to the cache.", no_args_is_help=True)


@models.command("add")
def add(
    source: Annotated[str, typer.Argument(help="A known model (smollm2), a .gguf file, or a LoRA's folder.")],
    name: Annotated[str | None, typer.Option(help="What --model calls it; default: its own name.")] = None,
) -> None:
    """Convert a model once into the cache; nothing is downloaded or installed.

    Example: rwbench models add smollm2
    """
    from ..models import adapter_folder
    from ..models.added import add_model

    folder = add_model(source, name)
    reads = adapter_folder(folder.name, "dynarule-plus", "nl") is not None
    typer.echo(f"wrote {folder}")
    ask = "book my-book" if reads else "run rulebooks --method prompting --limit 1"
    typer.echo(f"next, to ask it: rwbench {ask} --model {folder.name}")


def book(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.", show_default=False)],
    model: Annotated[str, typer.Option(help="A shipped model.")] = "tiny",
) -> None:
    """Write rules.txt, a base model and its DynaRule adapter for rules in English; rules of your own take its place.

    Example: rwbench book my-book
    """
    from ruleworld_data.io import whole_folder

    from ..models import SHIPPED, adapter_folder, base_folder

    base, adapter = base_folder(model), adapter_folder(model, "dynarule-plus", "nl")
    if adapter is None:
        raise FileNotFoundError(f"model {model!r} has no DynaRule+ adapter for English; type --model tiny")
    with whole_folder(folder) as work:
        shutil.copytree(base, work / "base")
        shutil.copytree(adapter, work / "adapter")
        config = work / "adapter" / "adapter_config.json"
        values = json.loads(config.read_text(encoding="utf-8"))
        # PEFT's AutoPeftModelForCausalLM loads the base from here.
        values["base_model_name_or_path"] = str((folder / "base").absolute())
        config.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        shutil.copyfile(SHIPPED / "book.txt", work / "rules.txt")
    asked = "After a feral cow haunted a rustic raccoon, how many rubbery hips does the rustic raccoon have?"
    given = f"--model {folder}/base --adapter {folder}/adapter --rules {folder}/rules.txt"
    typer.echo(f"wrote {folder}; next:\ndynarule generate {given} --trace -q '{asked}'", err=True)
