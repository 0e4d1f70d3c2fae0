"""The command ``ruleworld``: build, look at, verify and export the benchmark."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .spec import VERSION, Dials, WorldSpec, data_version


class _Commands(TyperGroup):
    """Commands whose user errors end with exit code 2 and one message, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (ValueError, OSError, ImportError) as error:
            typer.echo(f"ruleworld: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="ruleworld",
    cls=_Commands,
    help="RuleWorld: 4.94 M abstract rules, 3.38 M questions, every answer provable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ALL_CORES = os.cpu_count() or 1
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Scale = Annotated[str, typer.Option("--scale", help="tiny, paper or full.")]
Version = Annotated[str, typer.Option("--data-version", help="Version of the data.", show_default=VERSION)]
Turned = Annotated[
    str,
    typer.Option(
        "--dials", help="Where the world departs from the paper's, e.g. hops=6,crowd=16.", show_default="none"
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="World seed.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Worker processes.", show_default="all cores")]
BuildFolder = Annotated[Path, typer.Argument(help="Folder made by: ruleworld build", show_default=False)]
NewFolder = Annotated[Path, typer.Option("--out", help="New or empty folder.", show_default=False)]


def _version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"ruleworld {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """RuleWorld: 4.94 M abstract rules, 3.38 M questions, every answer provable."""


def _print(value: dict[str, Any], text: str | None = None) -> None:
    """Print a text, or without one JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False) if text is None else text)


def _spec(scale: str, split: str, seed: int, version: str, dials: str, config: str = "rules") -> WorldSpec:
    """Read the options that name a split of a world; without a version, `VERSION`."""
    turned = Dials.parse(dials).reaching(config)
    return WorldSpec(scale, split, seed, data_version(version or VERSION), turned)


@app.command()
def build(
    out: Annotated[Path, typer.Option("--out", help="New, empty or unfinished folder.", show_default=False)],
    scale: Scale = "paper",
    seed: Seed = 0,
    data_version: Version = "",
    dials: Turned = "",
    jobs: Jobs = ALL_CORES,
    ray: Annotated[
        str, typer.Option("--ray", metavar="ADDRESS", help="Make the shards as tasks of a Ray cluster.")
    ] = "",
) -> None:
    """Write the benchmark as parquet shards. Run it again to finish a build that was stopped.

    Example: ruleworld build --scale paper --out data
    """
    from .io import Progress, build_command
    from .io import build as run

    spec = _spec(scale, "train", seed, data_version, dials)
    try:
        with Progress("shards") as progress:
            made = run(
                out, scale, seed, jobs, progress.update, version=spec.version, dials=spec.dials, ray=ray
            )
    except KeyboardInterrupt:
        again = build_command(out, spec)
        typer.echo(f"\nruleworld: stopped; finished shards are kept. Go on with: {again}", err=True)
        raise typer.Exit(1) from None
    shards = made["shards"]
    rules = sum(shard["rows"] for shard in shards if shard["config"] == "rules")
    questions = sum(shard["rows"] for shard in shards) - rules
    size = sum(shard["bytes"] for shard in shards) / 1e6
    typer.echo(f"{out}: {rules:,} rules, {questions:,} questions, {len(shards)} shards, {size:.1f} MB")


@app.command()
def show(
    config: Annotated[
        str, typer.Argument(help="A sub-task, e.g. multi_hop_3, or rules.", show_default=False)
    ],
    n: Annotated[int, typer.Option("--n", min=1, help="How many rows.")] = 1,
    start: Annotated[int, typer.Option("--start", min=0, help="First row.")] = 0,
    split: Annotated[
        str | None, typer.Option("--split", help="Split.", show_default="test; train of rules")
    ] = None,
    scale: Scale = "paper",
    seed: Seed = 0,
    data_version: Version = "",
    dials: Turned = "",
    form: Annotated[
        str | None,
        typer.Option("--form", help="Rules and steps in nl or fol.", show_default="nl and fol"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print questions with their gold rules, steps and answers, generated on the spot.

    Example: ruleworld show multi_hop_3 --n 2
    """
    from .generate import world_of
    from .show import row_text, rows_with_rules

    split = split or ("train" if config == "rules" else "test")
    spec = _spec(scale, split, seed, data_version, dials, config)
    rows = rows_with_rules(config, spec, start, n)
    turned = f", {spec.dials}" if str(spec.dials) else ""
    head = f"RuleWorld {spec.version}, world {world_of(spec).world_id}, scale {spec.scale}{turned}"
    text = "\n\n".join([head, *(row_text(row, form) for row in rows)])
    _print({"config": config, "rows": rows}, None if as_json else text)


@app.command()
def stats(folder: BuildFolder, as_json: Json = False) -> None:
    """Count what a build holds: rows, rule types, skeletons, answer types.

    Example: ruleworld stats data
    """
    from .io import build_stats

    counted = build_stats(folder)
    built = counted.built
    turned = "".join(f", {name} {value}" for name, value in built["dials"].items())
    where = f"scale {built['scale']}, seed {built['seed']}{turned}, {built['bytes'] / 1e6:.1f} MB"
    text = "\n\n".join([f"RuleWorld {built['generator_version']}, {where}", *counted.texts().values()])
    _print(counted.to_dict(), None if as_json else text)


@app.command()
def verify(
    folder: BuildFolder,
    solver: Annotated[
        str, typer.Option("--solver", help="Who re-derives the answers: executor, clingo or both.")
    ] = "both",
    jobs: Jobs = ALL_CORES,
    leaks: Annotated[
        bool, typer.Option("--leaks", help="Report what shortcuts and memory score, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every constraint and re-derive every gold answer. Exit code 1: a check failed.

    Example: ruleworld verify data --solver clingo --leaks
    """
    from .io import Progress
    from .verify import leak_report, render_leaks, render_text
    from .verify import verify as run

    solvers = ("executor", "clingo") if solver == "both" else (solver,)
    with Progress("") as progress:
        report = run(folder, solvers, jobs, lambda stage, done, total: progress.update(done, total, stage))
    leaked = leak_report(folder) if leaks and report.ok else None
    if as_json:
        _print(report.to_dict() | ({"leaks": leaked} if leaks else {}))
    else:
        typer.echo(render_text(report))
        if leaks:
            missing = "leaks: not measured, because a check failed"
            typer.echo("\n" + (render_leaks(leaked) if leaked else missing))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def export(
    folder: BuildFolder,
    out: NewFolder,
    repo: Annotated[str, typer.Option("--repo", help="What its card calls the repository.")] = "OWNER/NAME",
) -> None:
    """Write a build as a dataset repository: parquet, and a card whose every number is computed.

    Example: ruleworld export data --out hub --repo OWNER/ruleworld
    """
    from .io import export as run

    files = run(folder, out, repo)
    send = shlex.join(["hf", "upload", repo, str(out), "--repo-type", "dataset", "--delete", "*.parquet"])
    opened = f"load_dataset({str(out)!r}, 'multi_hop_3')"
    typer.echo(f"{out}: {len(files)} files; open with {opened}, or send with {send}")


@app.command("plugin-path")
def plugin_path(
    tool: Annotated[str, typer.Argument(help="lm-eval, inspect, trl, ...", show_default=False)],
) -> None:
    """Print the folder or file of tasks that an evaluation tool is pointed at.

    Example: lm-eval run --include_path "$(ruleworld plugin-path lm-eval)" --tasks ruleworld ...
    """
    from .plugins import plugin_path as path

    typer.echo(path(tool))


@app.command()
def certify(
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the EnvConfig, as JSON: pool_size=1000.")
    ] = None,
    instances: Annotated[int, typer.Option("--instances", min=2, help="Instances to certify.")] = 300,
    out: Annotated[Path | None, typer.Option("--out", help="JSON file to write.", show_default=False)] = None,
) -> None:
    """Certify a training environment: its golden answers score 1, and clingo derives them. Exit code 1 if not.

    Example: ruleworld certify --set subtasks='["multi_hop_3"]' --set pool_size=200 --out certificate.json
    """
    from .environments import certificate_text, read_config
    from .environments import certify as run
    from .io import write_whole

    config = read_config(change or [])
    if out:  # before the work, whose result would be lost
        out.parent.mkdir(parents=True, exist_ok=True)
    made = run(config, instances)
    if out:
        write_whole(out, json.dumps(made, indent=1) + "\n")
    typer.echo(certificate_text(made))
    raise typer.Exit(not made["passes"])


main = app
if __name__ == "__main__":
    main()
