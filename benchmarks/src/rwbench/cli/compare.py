"""`rwbench compare`: paired differences between runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import JsonFlag, printable, user_errors

if TYPE_CHECKING:
    from ..report.compare import Comparison


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN [...]", help="Folders of runs, the baseline first.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric of results.json; may be given more than once.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs with the first one, question by question.

    Example: rwbench compare runs/1eff50249111 runs/9d3e21b0c4f7
    """
    with user_errors():
        from ..report.compare import compare_runs

        comparison = compare_runs(runs, metric or ())
    typer.echo(json.dumps(comparison) if as_json else printable(_text(comparison)))


def _text(comparison: Comparison) -> str:
    baseline, others = comparison["baseline"], comparison["comparisons"]
    lines = [f"baseline {baseline['run_id']}  {baseline['label']}"]
    for other in others:
        lines.append(f"\n{other['run_id']}  {other['label']}")
        for field, (ours, theirs) in other["spec_differences"].items():
            lines.append(f"  {field}: {json.dumps(ours)} -> {json.dumps(theirs)}")
        for metric, entry in other["metrics"].items():
            d = entry["difference"]
            value, low, high = (f"{100 * d[name]:+.1f}" for name in ("value", "ci_low", "ci_high"))
            lines.append(
                f"  {metric}: {100 * entry['first']:.1f} % -> {100 * entry['second']:.1f} %, difference {value} points "
                f"(95 % interval {low} to {high}), p = {d['p_value']:.2g}, Holm {entry['p_holm']:.2g}; {d['n']} shared "
                f"questions in {d['clusters']} clusters, {d['better']} better, {d['worse']} worse"
            )
    lines.append(
        "\nPaired by question. Intervals: bootstrap over clusters of questions that share a gold rule. p: sign flips "
        f"of whole clusters, two-sided; Holm's correction over {comparison['tests']} test(s)."
    )
    return "\n".join(lines)
