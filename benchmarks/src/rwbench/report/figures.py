"""Figures of a setting: accuracy by number of rules, and entropy of attention by layer."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from .charts import draw_line, drawing_style, label_ends, legend, number_axis, save, share_axis, stacked
from .setting import ANSWERS, MethodView, Setting, macro
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
    lines: dict[str, dict[MethodView, list[tuple[float, float]]]] = {}
    for form, (method, view) in product(best.representations, best.methods.items()):
        runs = [(size, best.find(method, form, size)) for size in best.sizes]
        points = [(float(size), e["value"]) for size, run in runs if run and (e := macro(run, best.lead))]
        if points:
            lines.setdefault(form, {})[view] = points
    if not lines:
        return None
    name = setting.lead.replace("_", " ").capitalize()
    figure, axes_of = stacked([f"{name}, {form.upper()}" for form in lines])
    for axes, of_form in zip(axes_of, lines.values(), strict=True):
        axes.set(xlabel="rules in the pool", xscale="log")
        share_axis(axes)
        last = max(points[-1][0] for points in of_form.values())
        for view, points in of_form.items():
            draw_line(axes, points, drawn[view.key], view.label)
        ends = {view: points[-1][1] for view, points in of_form.items() if points[-1][0] == last}
        label_ends(
            axes, [(y, drawn[view.key].colour, view.label.partition(",")[0]) for view, y in ends.items()]
        )
        number_axis(axes, setting.sizes)
    return figure


def entropy(setting: Setting) -> Figure | None:
    """Draw entropy of attention over rules by layer, of the runs that measured it; the lowest layer is ringed."""
    measured = [(run, curve) for run in setting.runs if (curve := run["measures"].get("rule_entropy"))]
    if not measured:
        return None
    drawn = styles(view.key for view in setting.methods.values())
    figure, (axes,) = stacked(["Attention entropy by layer"])
    axes.set(xlabel="layer (counted from 0)", ylabel="nats")
    for run, curve in measured:
        view, points = setting.view(run), list(zip(curve["layers"], curve["mean"], strict=True))
        draw_line(axes, points, drawn[view.key], f"{view.label}, {run['spec']['representation'].upper()}")
        low = min(points, key=lambda point: point[1])
        axes.plot(*low, "o", markersize=13, fillstyle="none", color=drawn[view.key].colour)
    axes.set_ylim(bottom=0)
    number_axis(axes, sorted({layer for _, curve in measured for layer in curve["layers"]}))
    legend(axes)
    return figure


def write_figure(setting: Setting, path: Path) -> None:
    """Draw the lead metric against pool size in a file (``.png``, ``.svg``, ``.pdf``); a ValueError without numbers."""
    with drawing_style():
        figure = by_size(setting)
        if figure is None:
            raise ValueError("these runs have no metric to draw; finish a run first: rwbench run smoke")
        save(figure, path)
