"""What the page shows of a setting: figures and tables, each made from the results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ..score.results import Estimate, Results
from ..score.scoring import RECALLS
from . import grids
from .charts import (
    UNITS,
    Line,
    Point,
    draw_lines,
    drawing_style,
    inline_svg,
    label_ends,
    number_axis,
    panels,
    save,
    share_axis,
)
from .grids import FORM_TITLES, Grid
from .setting import ANSWERS, MAIN_METRIC, MethodView, Setting, macro
from .style import styles
from .tables import estimates, percent, score_frame

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

HOPS = {"single_rule": 1, "multi_hop_2": 2, "multi_hop_3": 3, "multi_hop_4": 4}
WIDE = 0.1
"""Intervals whose half width is larger than this (median) are named under a figure instead of drawn in it."""
PHONE, PANEL = 410, 330
"""Width of a figure in a file, and height of each of its panels: letters keep their size on a phone."""
LONG = 20
"""A table of more rows opens on demand."""
MEANINGS = {
    ANSWERS: "Share of sub-questions answered rightly.",
    MAIN_METRIC: "Share of a question's gold rules among its top K, K being its number of gold rules.",
}


class Part(NamedTuple):
    """Drawings or tables with a title and a caption; ``folded`` ones open on demand."""

    title: str
    caption: str
    drawings: Sequence[Markup] = ()
    grids: Sequence[Grid] = ()
    folded: bool = False


def parts(setting: Setting, errors: Mapping[str, Mapping[str, int]]) -> list[Part]:
    """Return all that the setting's results can fill, without the table of all runs; ``errors`` by run id."""
    size = setting.sizes[-1]
    found: list[Part] = []
    for metric in (ANSWERS, MAIN_METRIC):
        if not _has(setting, metric) or (metric == ANSWERS != setting.lead):
            continue
        second = metric != setting.lead
        if len(setting.sizes) > 1:
            found.append(by_size(setting, metric, MEANINGS[metric]))
        names = {name: name.replace("_", " ") for name in setting.spec["subtasks"]}
        caption = f"{_worst(setting, metric, size)} Hover over a number for its interval."
        title = f"{_name(metric)} by sub-task in %, {size:,} rules"
        found.append(Part(title, caption, grids=grids.by_part(setting, metric, size, names), folded=second))
        found.append(by_hop(setting, metric, size))
    found += [
        by_size(setting, metric)._replace(folded=True)
        for metric in RECALLS[1:]
        if _has(setting, metric) and len(setting.sizes) > 1
    ]
    found += [*attention_maps(setting), *entropy(setting), *cost(setting)]
    wrong = grids.error_counts(setting, errors)
    found += [Part("How answers go wrong", "", grids=[wrong], folded=len(wrong.rows) > LONG)] if wrong else []
    by_part = (
        "In %, with 95 % intervals. One search is held to the question's K for all steps; searches per step are "
        "compared with the gold rules of their step. By type: over the questions that need such a rule."
    )
    folded = [
        Part("Recall@1 by step and by rule type", by_part, grids=[grids.by_step_and_type(setting)]),
        Part("Cost per question", "", grids=[grids.usage(setting)]),
        Part("What the time went to", "", grids=[grids.times(setting)]),
    ]
    return found + [part._replace(folded=True) for part in folded if part.grids[0].rows]


Points = Callable[[Results, MethodView], list[Point]]


def lines_by_form(setting: Setting, sizes: Sequence[int], points: Points) -> dict[str, list[Line]]:
    """Return representation -> a line per method with any points: ``points`` of its runs on these pools together."""
    drawn = styles(view.key for view in setting.methods.values())
    found = {}
    for form in setting.representations:
        lines = []
        for method, view in setting.methods.items():
            runs = [setting.find(method, form, size) for size in sizes]
            together = [point for run in runs if run for point in points(run, view)]
            if together:
                lines.append(Line(view.label, drawn[view.key], together))
        found[form] = lines
    return found


def size_lines(setting: Setting, metric: str) -> dict[str, list[Line]]:
    """Return representation -> a metric by pool size, a line per method."""

    def points(run: Results, view: MethodView) -> list[Point]:
        estimate, size = macro(run, metric), run["spec"]["pool_size"]
        return [_point(size, view.label, f"{size:,} rules", estimate)] if estimate else []

    return lines_by_form(setting, setting.sizes, points)


def by_size(setting: Setting, metric: str, meaning: str = "") -> Part:
    """Draw a metric against pool size, one panel per representation."""
    lines, title = size_lines(setting, metric), f"{_name(metric)} against pool size"
    n = f"n = {setting.num_questions:,} questions per point"
    caption = f"{meaning} Mean over sub-tasks with equal weight; {_intervals(lines)}; {n}."
    return Part(
        title, caption.strip(), _shares(lines, title, "rules in the pool (log scale)", setting.sizes, "log")
    )


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


def write_figure(setting: Setting, path: Path) -> Path:
    """Draw the lead metric against pool size in one file, FOL above NL, to be read on a phone.

    What is drawn is `one_each`, each line with its name; all numbers go beside it as CSV.

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
    from matplotlib.figure import Figure
    from ruleworld_data.io import write_whole

    lines = size_lines(one_each(setting), setting.lead)
    with drawing_style():
        figure = Figure(figsize=(PHONE / UNITS, len(lines) * PANEL / UNITS), dpi=UNITS)
        figure.subplots_adjust(left=0.12, right=0.58, bottom=0.06, top=0.95, hspace=0.3)
        axes_of = figure.subplots(len(lines), 1, squeeze=False)[:, 0]
        for axes, (form, drawn) in zip(axes_of, lines.items(), strict=True):
            axes.set(title=f"{_name(setting.lead)}, {form.upper()}", xlabel="rules in the pool", xscale="log")
            share_axis(axes)
            draw_lines(axes, drawn, intervals=False)
            number_axis(axes, setting.sizes)
            label_ends(axes, drawn, names=True)
        save(figure, path)
    table = score_frame(setting)[["method", "form", "size", "value", "ci_low", "ci_high"]].dropna()
    write_whole(path.with_suffix(".csv"), table.to_csv(index=False, lineterminator="\n").encode())
    return path.with_suffix(".csv")


def by_hop(setting: Setting, metric: str, size: int) -> Part:
    """Draw a metric against the number of hops at one pool size."""

    def points(run: Results, view: MethodView) -> list[Point]:
        found = estimates(run, metric)
        return [_point(n, view.label, f"{n} hops", found[name]) for name, n in HOPS.items() if name in found]

    lines, title = lines_by_form(setting, [size], points), f"{_name(metric)} by hop"
    caption = f"One rule, then chains of two to four steps; {_intervals(lines)}; {size:,} rules."
    return Part(title, caption, _shares(lines, title, "hops", list(HOPS.values())), folded=True)


def _drawings(
    lines: Mapping[str, Sequence[Line]], label: str, draw: Callable[[Axes, Sequence[Line]], None]
) -> list[Markup]:
    """Draw one figure per representation, so that a narrow page shows them one below another."""
    found = []
    for form in sorted(lines):
        with panels() as (figure, (axes,)):
            axes.set_title(FORM_TITLES[form])
            draw(axes, lines[form])
            found.append(inline_svg(figure, f"{label}, {form.upper()}"))
    return found


def _shares(
    lines: Mapping[str, Sequence[Line]], label: str, axis: str, ticks: Sequence[float], scale: str = "linear"
) -> list[Markup]:
    narrow = _half_width(lines) <= WIDE

    def draw(axes: Axes, drawn: Sequence[Line]) -> None:
        axes.set(xlabel=axis, xscale=scale)
        share_axis(axes)
        draw_lines(axes, drawn, intervals=narrow)
        number_axis(axes, ticks)
        label_ends(axes, drawn)

    return _drawings(lines, label, draw)


def attention_maps(setting: Setting) -> list[Part]:
    """Return the mean attention on gold rules by step, of the runs that measured it."""
    # One opens with the page, the others on demand: the method whose steps search, where it is read best.
    order = sorted(setting.runs, key=lambda r: (r["method"]["key"] != "dynarule", r["spec"]["pool_size"]))
    measured = [(_where(setting, run), run["measures"].get("rule_attention", {})) for run in order]
    tables = [
        [
            grids.attention(m["weights"], m["n"], f"{where}: {steps} step{'s' if steps != '1' else ''}")
            for steps, m in maps.items()
        ]
        for where, maps in measured
        if maps
    ]
    caption = (
        "Rows: retrievals. Columns: the gold rules of each step, weights summed. All rules weigh 1 together."
    )
    others = [grid for found in tables[1:] for grid in found]
    found = [Part("Rule attention by step", caption, grids=tables[0])] if tables else []
    return found + [Part("Rule attention by step, other runs", caption, grids=others, folded=True)] * bool(
        others
    )


def entropy(setting: Setting) -> list[Part]:
    """Draw attention entropy by layer of the runs that measured it, the lowest layer of each marked."""
    drawn = styles(view.key for view in setting.methods.values())
    lines: dict[str, list[Line]] = {}
    lowest = []
    for run in setting.runs:
        measured = run["measures"].get("rule_entropy")
        if measured:
            where = _where(setting, run)
            points = [
                Point(x, value, tip=f"{where}, layer {x}: {value:.2f} nats (standard deviation {std:.2f})")
                for x, value, std in zip(measured["layers"], measured["mean"], measured["std"], strict=True)
            ]
            lowest.append(f"{where}, layer {min(points, key=lambda point: point.value).x}")
            line = Line(where, drawn[setting.view(run).key], points)
            lines.setdefault(run["spec"]["representation"], []).append(line)
    if not lines:
        return []

    def draw(axes: Axes, drawn: Sequence[Line]) -> None:
        axes.set(xlabel="layer (counted from 0)", ylabel="nats")
        draw_lines(axes, drawn, intervals=False)
        for line in drawn:
            low = min(line.points, key=lambda point: point.value)
            axes.plot(low.x, low.value, "o", markersize=13, fillstyle="none", color=line.style.colour)
        axes.set_ylim(bottom=0)
        number_axis(axes, sorted({point.x for line in drawn for point in line.points}))

    caption = (
        "Entropy of attention over the rules, mean over heads, tokens and questions. The confidence layer (ringed) has "
        f"the lowest mean: {'; '.join(lowest)}."
    )
    title = "Attention entropy by layer"
    return [Part(title, caption, _drawings(lines, title, draw))]


def cost(setting: Setting) -> list[Part]:
    """Draw accuracy against tokens per question, or against seconds where no run counts tokens."""
    metric = setting.lead
    by_tokens = any(_tokens(run) for run in setting.runs if macro(run, metric))
    unit = "tokens" if by_tokens else "seconds"

    def points(run: Results, view: MethodView) -> list[Point]:
        seconds = run["timing"]["seconds"] / max(run["n"]["scored"], 1)
        spent, estimate = _tokens(run) if by_tokens else seconds, macro(run, metric)
        if not estimate or not spent:
            return []
        words = f"{_where(setting, run)}: {percent(estimate['value'])} % at {spent:,.3g} {unit} per question"
        return [Point(spent, estimate["value"], tip=words)]

    def draw(axes: Axes, drawn: Sequence[Line]) -> None:
        axes.set(xlabel=f"{unit} per question (log scale)", xscale="log")
        share_axis(axes)
        draw_lines(axes, drawn, intervals=False, connected=False)
        low, high = axes.get_xlim()
        nice = [digit * 10.0**power for power in range(-4, 10) for digit in (1, 2, 5)]
        number_axis(axes, [value for value in nice if low <= value <= high])

    lines = lines_by_form(setting, setting.sizes, points)
    if sum(len(line.points) for drawn in lines.values() for line in drawn) < 2:
        return []
    caption = "One mark per run: method, representation and pool size (hover to see which)."
    if by_tokens:
        caption += " Tokens of prompt and answer."
    else:
        caption += " Time of this machine; encoding that runs share falls on the first."
    drawings = _drawings(lines, "Cost and accuracy", draw)
    return [Part(f"Cost against {_name(metric).lower()}", caption, drawings)]


def _tokens(run: Results) -> float:
    found = run["usage"]
    return sum(found[name]["mean"] for name in ("prompt_tokens", "completion_tokens") if name in found)


def _has(setting: Setting, metric: str) -> bool:
    return any(macro(run, metric) for run in setting.runs)


def _name(metric: str) -> str:
    return metric.replace("_", " ").capitalize()


def _where(setting: Setting, run: Results) -> str:
    spec = run["spec"]
    return f"{setting.view(run).label}, {spec['representation'].upper()}, {spec['pool_size']:,} rules"


def _point(x: float, label: str, where: str, estimate: Estimate) -> Point:
    tip = f"{label}, {where}: {grids.shaded(estimate).tip}"
    return Point(x, estimate["value"], estimate["ci_low"], estimate["ci_high"], tip)


def _half_width(lines: Mapping[str, Sequence[Line]]) -> float:
    """Return the median half width of the intervals of what competes."""
    points = [p for drawn in lines.values() for line in drawn if line.style.line != ":" for p in line.points]
    return median([(p.high - p.low) / 2 for p in points if p.low is not None and p.high is not None] or [0.0])


def _intervals(lines: Mapping[str, Sequence[Line]]) -> str:
    half = _half_width(lines)
    if half <= WIDE:
        return "whiskers are 95 % intervals"
    return f"95 % intervals of ± {100 * half:.0f} points (median) are too wide to draw"


def _worst(setting: Setting, metric: str, size: int) -> str:
    """Say how far a cell by sub-task may be off."""
    found = [
        estimates(run, metric)[name]
        for run in setting.runs
        if run["spec"]["pool_size"] == size
        for name in setting.spec["subtasks"]
        if name in estimates(run, metric)
    ]
    half = median([(e["ci_high"] - e["ci_low"]) / 2 for e in found] or [0.0])
    counts = sorted({e["n"] for e in found} or {0})
    n = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    return f"n = {n} per cell, 95 % intervals of ± {100 * half:.0f} points (median)."
