"""Figures of what analyses measure: attention by step, entropy by layer; and what an answer costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .palette import Style
from .svg import LEFT, RIGHT, WIDTH, columns, line, marker, svg, text, titled

CELL = 46


@dataclass(frozen=True)
class HeatMap:
    """Mean attention on the gold rules of every step (columns) at every retrieval (rows); ``n`` questions per row."""

    title: str
    weights: Sequence[Sequence[float]]
    n: Sequence[int]


@dataclass(frozen=True)
class LayerCurve:
    """Mean and standard deviation of the attention entropy (nats) by layer."""

    label: str
    style: Style
    layers: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]


@dataclass(frozen=True)
class CostPoint:
    """What a run costs per question, and the share it gets right."""

    style: Style
    cost: float
    value: float
    title: str


def heat_maps(maps: Sequence[HeatMap], label: str) -> Markup:
    """Draw heat maps side by side; every cell carries its number, so colour is never alone."""
    body: list[Markup] = []
    x, height = float(LEFT + 40), 0.0
    for found in maps:
        size = len(found.weights)
        body.append(text(x, 16, found.title, "panel"))
        for row, weights in enumerate(found.weights):
            y = 34.0 + row * CELL
            body.append(text(x - 8, y + CELL / 2 + 4, f"step {row + 1}", "tick end"))
            for column, weight in enumerate(weights):
                if found.n[row]:
                    body.append(_cell(x + column * CELL, y, weight, row, column, found.n[row]))
        for column in range(size):
            place = x + column * CELL + CELL / 2
            body.append(text(place, 34 + size * CELL + 18, f"gold {column + 1}", "tick middle"))
        height = max(height, 34 + size * CELL + 30)
        x += size * CELL + 96
    # Maps that do not fit beside each other make the figure wider; it scales down with the page.
    return svg(body, height, label, max(WIDTH, x - 50))


def layer_lines(curves: Sequence[LayerCurve], label: str) -> Markup:
    """Draw entropy by layer, bands of one standard deviation, the lowest layer of each curve marked."""
    top, height = 24, 240
    (x0, x1), *_ = columns(1)
    highest = max((m + s for c in curves for m, s in zip(c.mean, c.std, strict=True)), default=1.0) or 1.0
    layers = [layer for curve in curves for layer in curve.layers]
    low, high = min(layers, default=0), max(layers, default=1)

    def at(layer: int, value: float) -> str:
        share = (layer - low) / (high - low) if high > low else 0.5
        return f"{x0 + 10 + (x1 - x0 - 20) * share:.1f},{top + height * (1 - max(value, 0) / highest):.1f}"

    body: list[Markup] = []
    for quarter in range(5):
        y = top + height * (1 - quarter / 4)
        body.append(line(x0, y, x1, y, "grid"))
        body.append(text(x0 - 8, y + 4, f"{highest * quarter / 4:.1f}", "tick end"))
    for layer in sorted(set(layers)):
        place = float(at(layer, 0).split(",")[0])
        body.append(text(place, top + height + 18, str(layer), "tick middle"))
    body.append(text((x0 + x1) / 2, top + height + 38, "layer (counted from 0)", "axis middle"))
    for curve in curves:
        rows = list(zip(curve.layers, curve.mean, curve.std, strict=True))
        band = [at(layer, m + s) for layer, m, s in rows] + [
            at(layer, m - s) for layer, m, s in reversed(rows)
        ]
        path = [at(layer, mean) for layer, mean, _ in rows]
        body.append(
            Markup('<polygon class="band" style="fill:{}" points="{}"/>').format(
                curve.style.colour, " ".join(band)
            )
        )
        body.append(
            Markup('<polyline class="curve" style="stroke:{}" stroke-dasharray="{}" points="{}"/>').format(
                curve.style.colour, curve.style.dash or "none", " ".join(path)
            )
        )
        layer, mean, _ = min(rows, key=lambda row: row[1])
        px, py = map(float, at(layer, mean).split(","))
        title = f"{curve.label}: lowest entropy {mean:.2f} nats at layer {layer}"
        body.append(titled(marker(curve.style, px, py, 6), title))
        body.append(text(px, py + 20, f"layer {layer}", "tick middle"))
    return svg(body, top + height + 48, label)


def cost_points(points: Sequence[CostPoint], axis: str, label: str) -> Markup:
    """Draw accuracy against cost per question, log x."""
    top, height = 14, 260
    x0, x1 = float(LEFT), float(WIDTH - RIGHT)
    logs = [math.log10(point.cost) for point in points]
    low, high = math.floor(min(logs, default=0)), math.ceil(max(logs, default=1))
    high = max(high, low + 1)
    body: list[Markup] = []
    for tick in range(0, 101, 25):
        y = top + height * (1 - tick / 100)
        body += [line(x0, y, x1, y, "grid"), text(x0 - 8, y + 4, f"{tick}%", "tick end")]
    for power in range(low, high + 1):
        x = x0 + (x1 - x0) * (power - low) / (high - low)
        body.append(line(x, top, x, top + height, "grid faint"))
        body.append(text(x, top + height + 18, f"{10.0**power:,g}", "tick middle"))
    body.append(text((x0 + x1) / 2, top + height + 38, axis, "axis middle"))
    for point, place in zip(points, logs, strict=True):
        x = x0 + (x1 - x0) * (place - low) / (high - low)
        body.append(titled(marker(point.style, x, top + height * (1 - point.value), 5), point.title))
    return svg(body, top + height + 48, label)


def _cell(x: float, y: float, weight: float, row: int, column: int, n: int) -> Markup:
    """One cell: opacity of one colour grows with the weight, so it works on light and dark paper."""
    share = min(max(weight, 0.0), 1.0)
    shape = Markup(
        '<rect class="cell" x="{:.1f}" y="{:.1f}" width="{}" height="{}" style="fill-opacity:{:.3f}"/>'
    ).format(x, y, CELL - 2, CELL - 2, share)
    css = "strong middle" if share > 0.85 else "value middle"
    words = text(x + CELL / 2 - 1, y + CELL / 2 + 4, f"{weight:.2f}", css)
    title = f"retrieval {row + 1} gives the gold rules of step {column + 1} the weight {weight:.3f} (n = {n})"
    return titled(shape + words, title)
