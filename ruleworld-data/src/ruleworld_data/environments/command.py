"""The command ``ruleworld certify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def certify(
    config: Annotated[
        Path | None, typer.Argument(help="JSON file of an EnvConfig.", show_default="its defaults")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the EnvConfig, as JSON: pool_size=1000.")
    ] = None,
    instances: Annotated[int, typer.Option("--instances", min=2, help="Instances to certify.")] = 300,
    out: Annotated[Path | None, typer.Option("--out", help="JSON file to write.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Certify the reward of a training environment: golden answers, clingo, gaming policies. Exit code 1 if it fails.

    Example: ruleworld certify --set subtasks='["multi_hop_3"]' --set pool_size=200 --out certificate.json
    """
    from ..io import write_whole
    from .certificate import certify as run
    from .config import read_config

    made = run(read_config(config, change or []), instances, lambda what: typer.echo(what, err=True))
    if out:
        write_whole(out, json.dumps(made.to_dict(), indent=1) + "\n")
    typer.echo(json.dumps(made.to_dict(), indent=1) if as_json else made.to_text())
    raise typer.Exit(not made.passes)
