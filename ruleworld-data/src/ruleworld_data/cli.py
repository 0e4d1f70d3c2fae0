"""The command ``ruleworld``: build, look at, verify, score and export the benchmark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="ruleworld",
    help="RuleWorld: 4.94 M abstract rules, 3.38 M questions, every answer provable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
ScaleOption = Annotated[str, typer.Option("--scale", help="tiny, paper or full.")]
SeedOption = Annotated[int, typer.Option("--seed", help="World seed.")]
BuildFolder = Annotated[Path, typer.Argument(help="Folder made by: ruleworld build", show_default=False)]


class Solver(StrEnum):
    """Who re-derives the answers."""

    executor = "executor"
    clingo = "clingo"
    both = "both"


def main() -> None:
    """Run the command line; user errors end with exit code 2 and one message, never a traceback."""
    try:
        app()
    except BrokenPipeError:
        # The reader of our output has gone (as in `| head`); nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _user_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError, ImportError) as error:
            typer.echo(f"ruleworld: {error}", err=True)
            raise typer.Exit(2) from None

    return run


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


@app.command()
@_user_errors
def build(
    out: Annotated[Path, typer.Option("--out", help="New, empty or unfinished folder.", show_default=False)],
    scale: ScaleOption = "paper",
    seed: SeedOption = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Worker processes.", show_default="all cores")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Write the benchmark as parquet shards. Run it again to finish a build that was stopped.

    Example: ruleworld build --scale paper --out data
    """
    from .io import Progress, ShardFile
    from .io import build as run

    try:
        with Progress("shards", quiet=quiet) as progress:

            def report(done: ShardFile, count: int, total: int) -> None:
                verb = "kept" if done.resumed else "wrote"
                progress.update(count, total, f"{verb} {done.shard.path}")

            manifest = run(out, scale, seed, os.cpu_count() or 1 if jobs is None else jobs, report)
    except KeyboardInterrupt:
        again = f"ruleworld build --out {out} --scale {scale} --seed {seed}"
        typer.echo(f"\nruleworld: stopped; finished shards are kept. Go on with: {again}", err=True)
        raise typer.Exit(1) from None
    rows = sum(s["rows"] for s in manifest["shards"] if s["config"] != "rules")
    rules = sum(s["rows"] for s in manifest["shards"] if s["config"] == "rules")
    size = sum(s["bytes"] for s in manifest["shards"]) / 1e6
    typer.echo(f"{out}: {rules:,} rules, {rows:,} questions, {len(manifest['shards'])} shards, {size:.1f} MB")


@app.command()
@_user_errors
def show(
    config: Annotated[
        str, typer.Argument(help="A sub-task, e.g. multi_hop_3, or rules.", show_default=False)
    ],
    n: Annotated[int, typer.Option("--n", min=1, help="How many rows.")] = 1,
    start: Annotated[int, typer.Option("--start", min=0, help="First row.")] = 0,
    split: Annotated[
        str | None, typer.Option("--split", help="Split.", show_default="test; train of rules")
    ] = None,
    scale: ScaleOption = "paper",
    seed: SeedOption = 0,
    as_json: Json = False,
) -> None:
    """Print questions with their gold rules, steps and answers, generated on the spot.

    Example: ruleworld show multi_hop_3 --n 2
    """
    from .show import shown, text

    rows = shown(config, split or ("train" if config == "rules" else "test"), scale, seed, start, n)
    if as_json:
        _print_json({"config": config, "rows": rows})
    else:
        typer.echo("\n\n".join(text(row) for row in rows))


@app.command()
@_user_errors
def stats(folder: BuildFolder, as_json: Json = False) -> None:
    """Count what a build holds: rows, rule types, skeletons, answer types.

    Example: ruleworld stats data
    """
    from .io import build_stats
    from .tables import print_stats

    counted = build_stats(folder)
    if as_json:
        _print_json(counted.to_dict())
    else:
        print_stats(counted)


@app.command()
@_user_errors
def verify(
    folder: BuildFolder,
    solver: Annotated[Solver, typer.Option("--solver", help="Who re-derives the answers.")] = Solver.both,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Worker processes.", show_default="all cores")
    ] = None,
    leaks: Annotated[
        bool, typer.Option("--leaks", help="Report leaks between splits and shortcuts, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Check every constraint and re-derive every gold answer. Exit code 1: a check failed.

    Example: ruleworld verify data --solver clingo --leaks
    """
    from .io import Progress
    from .verify import leak_report, render_leaks, render_text
    from .verify import verify as run

    solvers = ("executor", "clingo") if solver is Solver.both else (solver.value,)
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    with Progress("", quiet=quiet) as progress:
        report = run(folder, solvers=solvers, jobs=jobs, progress=progress.stage)
        found = leak_report(folder, progress.stage) if leaks and report.ok else None
    if as_json:
        _print_json(report.to_dict() | ({"leaks": found.to_dict() if found else None} if leaks else {}))
    else:
        typer.echo(render_text(report))
        if leaks:
            typer.echo(
                "\n" + (render_leaks(found) if found else "leaks: not measured, because a check failed")
            )
    if not report.ok:
        raise typer.Exit(1)


@app.command()
@_user_errors
def score(
    predictions: Annotated[
        Path, typer.Argument(help='JSON Lines of {"id", "output"}, or parquet.', show_default=False)
    ],
    split: Annotated[str, typer.Option("--split", help="Split that was answered.")] = "test",
    subtask: Annotated[
        list[str] | None, typer.Option("--subtask", help="Repeat for several.", show_default="those answered")
    ] = None,
    scale: ScaleOption = "paper",
    seed: SeedOption = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Unanswered questions score 0.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score model outputs: exact match (the paper's), strict match, missing boxes, by sub-task.

    Example: ruleworld score outputs.jsonl --split test
    """
    from .scoring import score_file
    from .tables import print_scores

    result = score_file(predictions, split, subtask, scale, seed, allow_missing)
    if as_json:
        _print_json(result)
    else:
        print_scores(result)


@app.command()
@_user_errors
def export(
    folder: BuildFolder,
    out: Annotated[Path, typer.Option("--out", help="New or empty folder.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Write a build as a dataset repository: parquet, card with every number computed, eval.yaml.

    Example: ruleworld export data --out hub
    """
    from .io import export as run

    written = run(folder, out)
    if as_json:
        _print_json({"out": str(out), "files": written})
    else:
        typer.echo(f"{out}: {len(written)} files; open with load_dataset({str(out)!r}, 'multi_hop_3')")


@app.command()
@_user_errors
def push(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder made by: ruleworld export", show_default=False)
    ] = None,
    to: Annotated[str, typer.Option("--to", help="Repository: OWNER/NAME.", show_default=False)] = "",
    metric: Annotated[bool, typer.Option("--metric", help="The Space of the metric instead.")] = False,
    private: Annotated[bool, typer.Option("--private", help="If the repository is made by this.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and sizes; send nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send the dataset or the metric to the Hugging Face Hub, in one commit. The token is read from HF_TOKEN.

    Example: ruleworld push hub --to OWNER/ruleworld --dry-run
    """
    from .io import push_dataset, push_metric

    if (folder is None) != metric:
        raise ValueError("give either a folder made by `ruleworld export`, or --metric")
    if folder is None:
        pushed = push_metric(to, private=private, dry_run=dry_run)
    else:
        pushed = push_dataset(folder, to, private=private, dry_run=dry_run)
    if as_json:
        _print_json(pushed.to_dict())
    else:
        typer.echo(pushed.to_text())


@app.command()
@_user_errors
def merge(
    folder: BuildFolder,
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="OpenAI-compatible base URL.", show_default=False)
    ],
    model: Annotated[str, typer.Option("--model", help="Model name there.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write.", show_default=False)],
    subtask: Annotated[str, typer.Option("--subtask", help="multi_rule_2 .. multi_rule_8.")] = "multi_rule_4",
    split: Annotated[str, typer.Option("--split", help="Split.")] = "test",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="First rows only.", show_default="all")
    ] = None,
) -> None:
    """Let a language model reword parallel questions; a wording that loses a name or number is refused.

    Example: ruleworld merge data --endpoint http://localhost:8000/v1 --model qwen --out reworded.parquet
    """
    from .io import Progress
    from .merge import merge_split

    with Progress("questions") as progress:
        result = merge_split(folder, subtask, split, endpoint, model, out, limit, progress.update)
    typer.echo(
        f"{out}: {result.reworded:,} reworded, {result.kept:,} kept as they were "
        f"({result.refused:,} refused, {result.failed:,} without an answer)"
    )


@app.command("plugin-path")
@_user_errors
def plugin_path(
    tool: Annotated[str, typer.Argument(help="lm-eval, inspect, lighteval or mteb.", show_default=False)],
) -> None:
    """Print the folder or file of tasks that an evaluation tool is pointed at.

    Example: lm-eval run --include_path "$(ruleworld plugin-path lm-eval)" --tasks ruleworld ...
    """
    from .plugins import plugin_path as path

    typer.echo(path(tool))


if __name__ == "__main__":
    main()
