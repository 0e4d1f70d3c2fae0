"""Figures as inline SVG: plain strings with CSS variables, so a page works from disk, light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from .palette import Style

WIDTH = 900
PANEL_GAP = 76
LEFT, RIGHT = 44, 22


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


def recall_curves(panels: Sequence[Panel], label: str) -> Markup:
    """Draw value against pool size, log x, one panel beside another, bands for the intervals.

    Parameters
    ----------
    panels : sequence of Panel
        Their series' ``x`` are pool sizes.
    label : str
        What the figure shows, for screen readers.
    """
    top, height = 34, 260
    sizes = sorted({int(x) for panel in panels for series in panel.series for x in series.points})
    body: list[Markup] = []
    for panel, (x0, x1) in zip(panels, _columns(len(panels)), strict=True):
        body.append(_text(x0, 16, panel.title, "panel"))
        for tick in range(0, 101, 25):
            y = top + height * (1 - tick / 100)
            body.append(_line(x0, y, x1 - 14, y, "grid"))
            body.append(_text(x0 - 8, y + 4, f"{tick}%", "tick end"))
        place = _log_scale(sizes, x0 + 18, x1 - 18)
        for size in sizes:
            body.append(_text(place(size), top + height + 20, f"{size:,}", "tick middle"))
        body.append(_text((x0 + x1) / 2, top + height + 40, "rules in the pool (log scale)", "axis middle"))
        for series in panel.series:
            body.append(_curve(series, place, top, height))
        ends = [(top + height * (1 - p.value), p.value) for p in map(_last, panel.series)]
        for y, value in _apart(ends):
            body.append(_text(x1 - 8, y + 4, f"{100 * value:.0f}", "tick"))
    return _svg(body, top + height + 50, label)


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
    for number, (panel, (x0, x1)) in enumerate(zip(panels, _columns(len(panels), first=names), strict=True)):
        body.append(_text(x0, 16, panel.title, "panel"))
        for tick in range(0, 101, 25):
            x = x0 + (x1 - x0) * tick / 100
            body.append(_line(x, top, x, top + height, "grid"))
            body.append(_text(x, top + height + 18, f"{tick}%", "tick middle"))
        for slot, (key, name) in enumerate(rows):
            y0 = top + slot * per_row
            if slot:
                body.append(_line(x0, y0, x1, y0, "grid faint"))
            if number == 0:
                body.append(_text(names - 8, y0 + per_row / 2 + 4, name, "tick end"))
            for lane, series in enumerate(panel.series):
                if key in series.points:
                    body.append(_whisker(series, series.points[key], x0, x1, y0 + 8 + lane * 6))
    return _svg(body, top + height + 30, label)


def swatch(style: Style) -> Markup:
    """Return a small line with marker for a legend."""
    parts = [
        Markup(
            '<line x1="1" y1="8" x2="29" y2="8" style="stroke:{};stroke-width:2" stroke-dasharray="{}"/>'
        ).format(style.colour, style.dash or "none"),
        _marker(style, 15, 8),
    ]
    return Markup(
        '<svg class="swatch" width="30" height="16" viewBox="0 0 30 16" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))


def _columns(count: int, first: float = LEFT) -> list[tuple[float, float]]:
    """Return the left and right edge of each panel."""
    width = (WIDTH - first - RIGHT - PANEL_GAP * (count - 1)) / max(count, 1)
    return [(first + i * (width + PANEL_GAP), first + i * (width + PANEL_GAP) + width) for i in range(count)]


def _log_scale(sizes: Sequence[int], x0: float, x1: float) -> Callable[[float], float]:
    low, high = math.log10(min(sizes, default=1)), math.log10(max(sizes, default=10))
    if high == low:
        return lambda size: (x0 + x1) / 2
    return lambda size: x0 + (x1 - x0) * (math.log10(size) - low) / (high - low)


def _curve(series: Series, place: Callable[[float], float], top: float, height: float) -> Markup:
    def at(x: str | int, value: float) -> str:
        return f"{place(int(x)):.1f},{top + height * (1 - value):.1f}"

    points = sorted(series.points.items(), key=lambda item: int(item[0]))
    band = [at(x, p.high) for x, p in points] + [at(x, p.low) for x, p in reversed(points)]
    line = [at(x, p.value) for x, p in points]
    parts = [
        Markup('<polygon class="band" style="fill:{}" points="{}"/>').format(
            series.style.colour, " ".join(band)
        ),
        Markup('<polyline class="curve" style="stroke:{}" stroke-dasharray="{}" points="{}"/>').format(
            series.style.colour, series.style.dash or "none", " ".join(line)
        ),
    ]
    for x, point in points:
        px, py = (float(part) for part in at(x, point.value).split(","))
        parts.append(_titled(_marker(series.style, px, py), point.title))
    return Markup("<g>{}</g>").format(Markup("").join(parts))


def _last(series: Series) -> Point:
    return series.points[max(series.points, key=int)]


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
    return _titled(bar + _marker(series.style, at(point.value), y, 3.2), point.title)


def _titled(shape: Markup, title: str) -> Markup:
    return Markup("<g><title>{}</title>{}</g>").format(title, shape)


SHAPES = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "diamond": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    "triangle": ((0, -1.3), (1.25, 0.95), (-1.25, 0.95)),
    "star": tuple(
        (math.sin(i * math.pi / 5) * (1.6, 0.7)[i % 2], -math.cos(i * math.pi / 5) * (1.6, 0.7)[i % 2])
        for i in range(10)
    ),
}


def _marker(style: Style, x: float, y: float, size: float = 4.0) -> Markup:
    if style.marker in SHAPES:
        points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in SHAPES[style.marker])
        return Markup('<polygon class="dot" style="fill:{}" points="{}"/>').format(style.colour, points)
    if style.marker == "cross":
        lines = Markup('<path class="cross" style="stroke:{}" d="M{:.1f} {:.1f}l{s} {s}m0 -{s}l-{s} {s}"/>')
        return lines.format(style.colour, x - size * 0.8, y - size * 0.8, s=f"{size * 1.6:.1f}")
    return Markup('<circle class="dot" style="fill:{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(
        style.colour, x, y, size
    )


def _text(x: float, y: float, text: str, css: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(x, y, css, text)


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(
        x1, y1, x2, y2, css
    )


def _svg(body: Sequence[Markup], height: float, label: str) -> Markup:
    return Markup('<svg class="figure" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, escape(label), Markup("").join(body)
    )
