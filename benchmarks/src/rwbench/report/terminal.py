"""The result as a table: in the terminal, or in Markdown for a README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..score.results import Results
from .setting import ANSWERS, Setting, macro, settings
from .summary import TIMES_CAPTION, headline, percent, times

if TYPE_CHECKING:
    from rich.console import Console

CAPTIONS = {ANSWERS: "Exact match in %", "recall@1": "Recall@1 in % (K = number of gold rules)"}
"""What a table's numbers are, by lead metric."""


def print_report(results: Sequence[Results], console: Console) -> None:
    """Print one table per setting: a row per method and representation, the lead metric by pool size."""
    for setting in settings(results):
        console.print(_table(setting))
        console.print(" ".join(headline(setting)), style="bold", highlight=False, markup=False)


def _table(setting: Setting) -> Any:
    from rich.table import Table
    from rich.text import Text

    answered = setting.lead != ANSWERS and any(macro(run, ANSWERS) for run in setting.runs)
    table = Table(
        title=Text(setting.title()),
        caption=Text(f"{CAPTIONS[setting.lead]} by rules in the pool, ± half of the 95 % interval"),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("Method")
    table.add_column("Rules")
    for size in setting.sizes:
        table.add_column(f"{size:,}", justify="right")
    if answered:
        table.add_column(f"Exact match, {setting.sizes[-1]:,}", justify="right")
    for method, view in setting.methods().items():
        for number, representation in enumerate(setting.representations):
            runs = [setting.find(method, representation, size) for size in setting.sizes]
            cells = [_cell(run, setting.lead) for run in runs]
            answers = [_cell(runs[-1], ANSWERS)] if answered else []
            name = Text(view.label if number == 0 else "")
            last = number == len(setting.representations) - 1
            table.add_row(name, representation.upper(), *cells, *answers, end_section=last)
    return table


def _cell(run: Results | None, metric: str) -> str:
    estimate = macro(run, metric) if run else None
    if estimate is None:
        return "-"
    half = (estimate["ci_high"] - estimate["ci_low"]) / 2
    failed = "*" if run and run["n"]["failed"] else ""
    return f"{percent(estimate['value'])} ±{100 * half:.1f}{failed}"


def markdown_table(setting: Setting) -> str:
    """Return the lead metric's table of a setting in Markdown, percentages with their 95 % intervals."""
    columns = [(size, name) for size in setting.sizes for name in setting.representations]
    lines = [
        f"{CAPTIONS[setting.lead].partition(' (')[0]} (95 % interval); {setting.title()}.",
        "",
        "| method | " + " | ".join(f"{size:,} rules, {name.upper()}" for size, name in columns) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for method, view in setting.methods().items():
        cells = [_interval(setting.find(method, name, size), setting.lead) for size, name in columns]
        lines.append(f"| {view.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown_times(setting: Setting) -> str:
    """Return what the time of a setting's runs went to in Markdown."""
    stages, rows = times(setting)
    lines = [
        f"{TIMES_CAPTION}; {setting.title()}.",
        "",
        "| " + " | ".join(["method", *stages, "in all"]) + " |",
        "| --- |" + " ---: |" * (len(stages) + 1),
    ]
    for label, by_stage, whole in rows:
        cells = [f"{by_stage[stage]:,.1f}" if stage in by_stage else "-" for stage in stages]
        lines.append("| " + " | ".join([label, *cells, f"{whole:,.1f}"]) + " |")
    return "\n".join(lines)


def _interval(run: Results | None, metric: str) -> str:
    estimate = macro(run, metric) if run else None
    if estimate is None:
        return "-"
    return f"{percent(estimate['value'])} ({percent(estimate['ci_low'])}-{percent(estimate['ci_high'])})"
