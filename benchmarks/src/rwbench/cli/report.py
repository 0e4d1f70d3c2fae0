"""`rwbench report`, from runs to a table and a page, and `rwbench compare`, paired differences between them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import JsonFlag, RunsFolder, checked_results, printable

if TYPE_CHECKING:
    from ..report.compare import Comparison
    from ..score.results import Results


def report(
    folder: RunsFolder,
    as_json: JsonFlag = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown only.")] = False,
    paper: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Print ours beside the paper's (table2, figure4)."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Only draw accuracy by number of rules: .png, .svg or .pdf."),
    ] = None,
    pack_to: Annotated[
        Path | None,
        typer.Option("--pack", metavar="FOLDER", help="Only write the runs there, small, to be committed."),
    ] = None,
) -> None:
    """Print the table of all runs below a folder and write DIR/report.html.

    Example: rwbench report runs
    """
    if not (results := checked_results(folder)):
        raise FileNotFoundError(f"no results.json below {folder}; finish a run first: rwbench run smoke")
    if pack_to is not None:
        from ..score.results import pack

        size = pack(results, folder, pack_to)
        typer.echo(f"{len(results)} runs, {size:,} bytes; look at them: rwbench report {pack_to}")
    elif figure is not None:
        from ..report.figures import write_figure
        from ..report.setting import settings

        write_figure(settings(results)[0], figure)
        typer.echo(str(figure))
    elif paper is not None:
        from ..report.paper import beside_paper
        from ..report.tables import table_of

        if not (found := beside_paper(results, paper, folder)):
            raise ValueError(f"no run here belongs to {paper}; the recipes that make such: rwbench list")
        for one in found:
            typer.echo(fill(one.caption, 120, break_on_hyphens=False))
            typer.echo(f"\n{table_of(one.frame.columns.tolist(), one.frame.to_numpy())}\n")
    elif markdown:
        from ..report.setting import settings
        from ..report.tables import markdown_table

        typer.echo("\n\n".join(map(markdown_table, settings(results))))
    else:
        page = write_page(results, folder, f"rwbench report {folder.name}", [])
        show_results(results, page, as_json, [])


def show_results(results: list[Results], page: Path, as_json: bool, skipped: list[str]) -> None:
    """Print results and leave with 1 if any question failed."""
    failed = sum(run["n"]["failed"] for run in results)
    if as_json:
        typer.echo(json.dumps({"runs": results, "skipped": skipped, "report": str(page)}))
    else:
        from ..report.setting import settings
        from ..report.tables import headline, terminal_table

        for setting in settings(results):
            typer.echo(printable(f"{terminal_table(setting)}\n{headline(setting)}"))
        typer.echo(f"page: {page}")
    if failed:
        typer.echo(f"{failed} questions failed, see 'error' in samples.jsonl; run again to retry", err=True)
        raise typer.Exit(1)


def write_page(runs: list[Results], folder: Path, command: str, skipped: list[str], recipe: str = "") -> Path:
    """Write the page of some runs into their folder (see `render_page`) and return its path.

    A recipe gives the page its name, else it is called report.html.
    """
    from ruleworld_data.io import write_whole

    from ..report.page import render_page

    path = folder / (f"{recipe.replace('/', '-')}.html" if recipe else "report.html")
    title = f"RuleWorld: {recipe or 'all runs'}"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, render_page(runs, title, command, skipped))
    return path


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN [...]", help="Runs, the baseline first.")],
    metric: Annotated[list[str] | None, typer.Option(help="Metric of results.json; may be repeated.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs with the first one, question by question.

    Example: rwbench compare runs/1eff50249111 runs/9d3e21b0c4f7
    """
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
