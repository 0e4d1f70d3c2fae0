"""Figures as inline SVG: plain strings with CSS variables, so a page works from disk, light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .palette import Style
from .svg import columns, line, marker, svg, text, titled


@dataclass(frozen=True)
class Point:
    """A value in [0, 1] with its interval, and the text shown on hover."""

    value: float
    low: float
    high: float
    title: str


@dataclass(frozen=True)
class Series:
    """One method's points: ``x`` is a pool size, or a row's name in `dot_rows`."""

    label: str
    style: Style
    points: dict[str | int, Point]


@dataclass(frozen=True)
class Panel:
    """One of the panels that share an axis."""

    title: str
    series: Sequence[Series]


def recall_curves(
    panels: Sequence[Panel], label: str, axis: str = "rules in the pool (log scale)", log: bool = True
) -> Markup:
    """Draw value against pool size or another number, one panel beside another, bands for the intervals.

    Parameters
    ----------
    panels : sequence of Panel
        Their series' ``x`` are whole numbers.
    label : str
        What the figure shows, for screen readers.
    axis : str
        What ``x`` is.
    log : bool
        Scale of ``x``: logarithmic, or equal steps.
    """
    top, height = 34, 260
    sizes = sorted({int(x) for panel in panels for series in panel.series for x in series.points})
    body: list[Markup] = []
    for panel, (x0, x1) in zip(panels, columns(len(panels)), strict=True):
        body.append(text(x0, 16, panel.title, "panel"))
        for tick in range(0, 101, 25):
            y = top + height * (1 - tick / 100)
            body.append(line(x0, y, x1 - 14, y, "grid"))
            body.append(text(x0 - 8, y + 4, f"{tick}%", "tick end"))
        place = (_log_scale if log else _even_scale)(sizes, x0 + 18, x1 - 18)
        for size in sizes:
            body.append(text(place(size), top + height + 20, f"{size:,}", "tick middle"))
        body.append(text((x0 + x1) / 2, top + height + 40, axis, "axis middle"))
        for series in panel.series:
            body.append(_curve(series, place, top, height))
        # A number stands at the right edge, so only for a curve that reaches it.
        points = [item for series in panel.series for item in series.points.items()]
        ends = [(top + height * (1 - p.value), p.value) for x, p in points if int(x) == sizes[-1]]
        for y, value in _apart(ends):
            body.append(text(x1 - 8, y + 4, f"{100 * value:.0f}", "tick"))
    return svg(body, top + height + 50, label)


def dot_rows(panels: Sequence[Panel], rows: Sequence[tuple[str, str]], label: str) -> Markup:
    """Draw one row per sub-task and one dot with whiskers per method, panels side by side.

    Parameters
    ----------
    panels : sequence of Panel
        Their series' ``x`` are row keys.
    rows : sequence of (key, label)
    label : str
    """
    top, names = 34, 92
    per_row = max((len(panel.series) for panel in panels), default=1) * 6 + 10
    height = per_row * len(rows)
    body: list[Markup] = []
    for number, (panel, (x0, x1)) in enumerate(zip(panels, columns(len(panels), first=names), strict=True)):
        body.append(text(x0, 16, panel.title, "panel"))
        for tick in range(0, 101, 25):
            x = x0 + (x1 - x0) * tick / 100
            body.append(line(x, top, x, top + height, "grid"))
            body.append(text(x, top + height + 18, f"{tick}%", "tick middle"))
        for slot, (key, name) in enumerate(rows):
            y0 = top + slot * per_row
            if slot:
                body.append(line(x0, y0, x1, y0, "grid faint"))
            if number == 0:
                body.append(text(names - 8, y0 + per_row / 2 + 4, name, "tick end"))
            for lane, series in enumerate(panel.series):
                if key in series.points:
                    body.append(_whisker(series, series.points[key], x0, x1, y0 + 8 + lane * 6))
    return svg(body, top + height + 30, label)


def _log_scale(sizes: Sequence[int], x0: float, x1: float) -> Callable[[float], float]:
    low, high = math.log10(min(sizes, default=1)), math.log10(max(sizes, default=10))
    if high == low:
        return lambda size: (x0 + x1) / 2
    return lambda size: x0 + (x1 - x0) * (math.log10(size) - low) / (high - low)


def _even_scale(numbers: Sequence[int], x0: float, x1: float) -> Callable[[float], float]:
    low, high = min(numbers, default=0), max(numbers, default=1)
    return lambda number: x0 + (x1 - x0) * ((number - low) / (high - low) if high > low else 0.5)


def _curve(series: Series, place: Callable[[float], float], top: float, height: float) -> Markup:
    def at(x: str | int, value: float) -> str:
        return f"{place(int(x)):.1f},{top + height * (1 - value):.1f}"

    points = sorted(series.points.items(), key=lambda item: int(item[0]))
    band = [at(x, p.high) for x, p in points] + [at(x, p.low) for x, p in reversed(points)]
    path = [at(x, p.value) for x, p in points]
    parts = [
        Markup('<polygon class="band" style="fill:{}" points="{}"/>').format(
            series.style.colour, " ".join(band)
        ),
        Markup('<polyline class="curve" style="stroke:{}" stroke-dasharray="{}" points="{}"/>').format(
            series.style.colour, series.style.dash or "none", " ".join(path)
        ),
    ]
    for x, point in points:
        px, py = (float(part) for part in at(x, point.value).split(","))
        parts.append(titled(marker(series.style, px, py), point.title))
    return Markup("<g>{}</g>").format(Markup("").join(parts))


def _apart(labels: Sequence[tuple[float, float]], gap: float = 12) -> list[tuple[float, float]]:
    """Move (y, value) labels so that none covers another, the lowest kept where it is."""
    placed: list[tuple[float, float]] = []
    for y, value in sorted(labels, reverse=True):
        placed.append((min(y, placed[-1][0] - gap) if placed else y, value))
    return placed


def _whisker(series: Series, point: Point, x0: float, x1: float, y: float) -> Markup:
    def at(value: float) -> float:
        return x0 + (x1 - x0) * value

    bar = Markup(
        '<line class="whisker" style="stroke:{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    ).format(series.style.colour, at(point.low), y, at(point.high), y)
    return titled(bar + marker(series.style, at(point.value), y, 3.2), point.title)
