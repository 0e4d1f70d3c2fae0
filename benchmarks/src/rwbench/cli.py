"""`rwbench`: run recipes, list what there is, write reports. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cli_report import report, show_results, write_page
from .cli_shared import JsonFlag, user_errors
from .efficiency.cli import app as efficiency

if TYPE_CHECKING:
    from .data import DataSource
    from .results import Results
    from .runner import Plan

app = typer.Typer(
    help="Every RuleWorld method side by side. Start with: rwbench run smoke",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(efficiency, name="efficiency")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; `rwbench list` shows all.")],
    limit: Annotated[int | None, typer.Option(min=1, help="First N questions per sub-task only.")] = None,
    split: Annotated[
        str, typer.Option(help="Questions to ask: mini, test, validation, heldout, train.")
    ] = "mini",
    scale: Annotated[str, typer.Option(help="Size of the world: tiny, paper, full.")] = "paper",
    seed: Annotated[int, typer.Option(min=0, help="World seed.")] = 0,
    data: Annotated[
        Path | None, typer.Option(help="A folder made by `ruleworld build`; its scale and seed count.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("runs"),
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, one process each.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and run nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe; running it again takes up where it stopped.

    Example: rwbench run smoke --limit 5
    """
    with user_errors():
        from .data import DataSource
        from .recipes import Options, recipes
        from .runner import Workspace, make_plan
        from .session import usable

        made = recipes.get(recipe)
        source = DataSource(scale, seed) if data is None else DataSource.from_build(data)
        specs, skipped = usable(made(Options(source, split, limit)))
        workspace = Workspace(source)
        plans = [make_plan(spec, workspace, out) for spec in specs]
    for note in skipped:
        typer.echo(f"not run here: {note}", err=True)
    if dry_run:
        _show_plans(plans, skipped, as_json)
        return
    results = _run_plans(plans, workspace, jobs)
    command = _command(made.name, source, split, limit)
    page = write_page(results, out, command, skipped, recipe=made.name, source=source)
    show_results(results, page, as_json, skipped)


@app.command("list")
def list_names(as_json: JsonFlag = False) -> None:
    """List recipes, methods and retrievers.

    Example: rwbench list
    """
    from .methods import Method
    from .recipes import recipes
    from .retrievers import Retriever

    groups = {
        "recipes": {name: entry.help for name, entry in recipes.items().items()},
        "methods": {name: _summary_line(entry) for name, entry in Method.registry.items().items()},
        "retrievers": {name: _summary_line(entry) for name, entry in Retriever.registry.items().items()},
    }
    if as_json:
        typer.echo(json.dumps(groups))
        return
    for title, entries in groups.items():
        typer.echo(f"{title}:")
        for name, text in entries.items():
            typer.echo(f"  {name:<12} {text}")


app.command()(report)


def _run_plans(plans: list[Plan], workspace: Any, jobs: int) -> list[Results]:
    import logging

    from .progress import NoteHandler, Progress
    from .session import run_all

    progress = Progress(sum(plan.scheduled - plan.done for plan in plans))
    log, handler = logging.getLogger("rwbench"), NoteHandler(progress)
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        with user_errors():
            results = run_all(plans, workspace, jobs, progress)
    except KeyboardInterrupt:
        progress.note(f"stopped; finished samples are kept. To go on: {_typed()}")
        raise typer.Exit(1) from None
    finally:
        log.removeHandler(handler)
    progress.close()
    return results


def _show_plans(plans: list[Plan], skipped: list[str], as_json: bool) -> None:
    rows = [
        {
            "run_id": plan.spec.run_id,
            "method": plan.spec.method,
            "representation": plan.spec.representation,
            "pool_size": plan.spec.pool_size,
            "scheduled": plan.scheduled,
            "done": plan.done,
            "state": plan.state,
            "folder": str(plan.folder),
        }
        for plan in plans
    ]
    left = sum(plan.scheduled - plan.done for plan in plans)
    if as_json:
        typer.echo(json.dumps({"runs": rows, "skipped": skipped, "samples_left": left}))
        return
    from .methods import Method

    for plan in plans:
        label = Method.from_dict(plan.spec.method).label
        spec = plan.spec
        where = f"{spec.representation.upper():<3} {spec.pool_size:>6,} rules per {spec.pool_scope}"
        typer.echo(f"{plan.folder}  {plan.state:<8} {plan.done}/{plan.scheduled}  {where:<27}  {label}")
    typer.echo(f"{len(plans)} runs, {left:,} samples to do, no model calls")


def _command(recipe: str, source: DataSource, split: str, limit: int | None) -> str:
    """Return the command that makes the same numbers on any machine."""
    words = ["rwbench run", recipe]
    words += [f"--scale {source.scale}"] if source.scale != "paper" else []
    words += [f"--seed {source.seed}"] if source.seed else []
    words += [f"--split {split}"] if split != "mini" else []
    words += [f"--limit {limit}"] if limit else []
    return " ".join(words)


def _typed() -> str:
    import shlex

    return shlex.join(["rwbench", *sys.argv[1:]])


def _summary_line(entry: type) -> str:
    return (entry.__doc__ or "").strip().split("\n")[0]


def main() -> None:
    """Entry point of the `rwbench` command."""
    app()


if __name__ == "__main__":
    main()
