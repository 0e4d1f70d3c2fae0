"""`rwbench book`: a small rule book with a shipped model, for `dynarule generate` and `dynarule serve`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from .shared import user_errors


def book(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.", show_default=False)],
    model: Annotated[str, typer.Option(help="A shipped model.")] = "tiny",
) -> None:
    """Write rules.txt, a base model and its DynaRule adapter for rules in English; rules of your own take its place.

    Example: rwbench book my-book
    """
    with user_errors():
        write_book(folder, model)
    asked = "After a feral cow haunted a rustic raccoon, how many rubbery hips does the rustic raccoon have?"
    given = f"--model {folder}/base --adapter {folder}/adapter --rules {folder}/rules.txt"
    typer.echo(f"wrote {folder}; next:\ndynarule generate {given} --trace -q '{asked}'", err=True)


def write_book(folder: Path, model: str = "tiny") -> None:
    """Write the folder, whole or not at all.

    A FileExistsError if there is something in it, a FileNotFoundError if there is no such model or it has no adapter
    for rules in English.
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
