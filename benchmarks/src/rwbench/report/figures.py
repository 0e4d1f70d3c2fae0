"""Figures of a setting: accuracy by number of rules, and entropy of attention by layer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .charts import (
    Line,
    Point,
    draw_lines,
    drawing_style,
    label_ends,
    legend,
    number_axis,
    save,
    share_axis,
    stacked,
)
from .setting import ANSWERS, Setting, macro
from .style import styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def one_each(setting: Setting) -> Setting:
    """Return the runs of each competing method with its best search and settings, of its first training."""
    runs = [run for run in setting.runs if not run["spec"]["method"].get("variant")]
    first = Setting(tuple(runs))
    cells = Counter((first.method_of(run), run["spec"]["representation"]) for run in runs)
    order = list(first.methods)  # best first
    best: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: order.index(first.method_of(run))):
        method, view = first.method_of(run), first.view(run)
        is_line = cells[method, run["spec"]["representation"]] > 1 or len(first.sizes) == 1
        if is_line and not view.is_reference:
            name = run["spec"]["method"]["name"] if setting.lead == ANSWERS else view.key
            best.setdefault(name, method)
    return Setting(tuple(run for run in runs if first.method_of(run) in best.values()) or setting.runs)


def by_size(setting: Setting) -> Figure | None:
    """Draw the lead metric against pool size, a line per method of `one_each` with its name."""
    best = one_each(setting)
    drawn = styles(view.key for view in best.methods.values())
    lines: dict[str, list[Line]] = {}
    for form in best.representations:
        for method, view in best.methods.items():
            points = [
                Point(size, estimate["value"])
                for size in best.sizes
                if (run := best.find(method, form, size)) and (estimate := macro(run, best.lead))
            ]
            if points:
                lines.setdefault(form, []).append(Line(view.label, drawn[view.key], points))
    if not lines:
        return None
    name = setting.lead.replace("_", " ").capitalize()
    figure, axes_of = stacked([f"{name}, {form.upper()}" for form in lines])
    for axes, of_form in zip(axes_of, lines.values(), strict=True):
        axes.set(xlabel="rules in the pool", xscale="log")
        share_axis(axes)
        draw_lines(axes, of_form)
        number_axis(axes, setting.sizes)
        label_ends(axes, of_form)
    return figure


def entropy(setting: Setting) -> Figure | None:
    """Draw entropy of attention over rules by layer, of the runs that measured it; the lowest layer is ringed."""
    drawn = styles(view.key for view in setting.methods.values())
    lines = []
    for run in setting.runs:
        if measured := run["measures"].get("rule_entropy"):
            points = [Point(*pair) for pair in zip(measured["layers"], measured["mean"], strict=True)]
            label = f"{setting.view(run).label}, {run['spec']['representation'].upper()}"
            lines.append(Line(label, drawn[setting.view(run).key], points))
    if not lines:
        return None
    figure, (axes,) = stacked(["Attention entropy by layer"])
    axes.set(xlabel="layer (counted from 0)", ylabel="nats")
    draw_lines(axes, lines)
    for line in lines:
        low = min(line.points, key=lambda point: point.value)
        axes.plot(low.x, low.value, "o", markersize=13, fillstyle="none", color=line.style.colour)
    axes.set_ylim(bottom=0)
    number_axis(axes, sorted({point.x for line in lines for point in line.points}))
    legend(axes)
    return figure


def write_figure(setting: Setting, path: Path) -> Path:
    """Draw the lead metric against pool size in one file, and write all numbers beside it.

    Parameters
    ----------
    setting : Setting
    path : Path
        ``.png``, ``.svg`` or ``.pdf``; the same results give the same bytes.

    Returns
    -------
    Path
        The CSV file: a row per run.
    """
    import pandas as pd
    from ruleworld_data.io import write_whole

    with drawing_style():
        figure = by_size(setting)
        if figure is None:
            raise ValueError("these runs have no metric to draw; finish a run first: rwbench run smoke")
        save(figure, path)
    rows = [
        (view.label, form.upper(), size, *(estimate[name] for name in ("value", "ci_low", "ci_high")))
        for size in setting.sizes
        for form in setting.representations
        for method, view in setting.methods.items()
        if (run := setting.find(method, form, size)) and (estimate := macro(run, setting.lead))
    ]
    table = pd.DataFrame(rows, columns=["method", "form", "size", "value", "ci_low", "ci_high"])
    write_whole(path.with_suffix(".csv"), table.to_csv(index=False, lineterminator="\n").encode())
    return path.with_suffix(".csv")
