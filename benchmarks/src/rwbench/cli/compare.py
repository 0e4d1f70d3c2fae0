"""`rwbench compare`: paired differences between runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import JsonFlag, user_errors

if TYPE_CHECKING:
    from ..report.compare import Comparison


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN RUN [...]", help="Run folders or ids, baseline first.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of run folders, for ids.")] = Path("runs"),
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric of results.json; may be given more than once.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs with the first one, question by question.

    Example: rwbench compare 1eff50249111 4a0c runs/9d3e21b0c4f7
    """
    with user_errors():
        from ..report.compare import compare_runs, find_run

        comparison = compare_runs([find_run(name, out) for name in runs], metric or ())
    if as_json:
        typer.echo(json.dumps(comparison))
    else:
        _print(comparison)


def _print(comparison: Comparison) -> None:
    typer.echo(f"baseline {comparison['baseline']['run_id']}  {comparison['baseline']['label']}")
    for other in comparison["comparisons"]:
        typer.echo(f"\n{other['run_id']}  {other['label']}")
        for field, (ours, theirs) in other["spec_differences"].items():
            typer.echo(f"  {field}: {json.dumps(ours)} -> {json.dumps(theirs)}")
        for metric, entry in other["metrics"].items():
            d = entry["difference"]
            typer.echo(
                f"  {metric}: {_percent(entry['first'])} -> {_percent(entry['second'])}, difference "
                f"{_points(d['value'])} points (95 % interval {_points(d['ci_low'])} to {_points(d['ci_high'])}), "
                f"p = {d['p_value']:.2g}, Holm {entry['p_holm']:.2g}; {d['n']} shared questions in {d['clusters']} "
                f"clusters, {d['better']} better, {d['worse']} worse"
            )
            if len(comparison["comparisons"]) == 1:
                for subtask, part in entry["by_subtask"].items():
                    interval = f"{_points(part['ci_low'])} to {_points(part['ci_high'])}"
                    typer.echo(
                        f"    {subtask:<14} {_points(part['value']):>6}  ({interval}), n = {part['n']}"
                    )
    typer.echo(
        f"\nPaired by question. Intervals: bootstrap over clusters of questions that share a gold rule. p: sign flips "
        f"of whole clusters, two-sided; Holm's correction over {comparison['tests']} test"
        f"{'s' if comparison['tests'] != 1 else ''}. Differences by sub-task are not tested."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"
