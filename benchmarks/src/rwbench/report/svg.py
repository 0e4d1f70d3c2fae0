"""Parts of figures: text, lines, markers and the frame, as inline SVG with CSS variables for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from .palette import Style

WIDTH = 900
PANEL_GAP = 76
LEFT, RIGHT = 44, 22


def swatch(style: Style) -> Markup:
    """Return a small line with marker for a legend."""
    parts = [
        Markup(
            '<line x1="1" y1="8" x2="29" y2="8" style="stroke:{};stroke-width:2" stroke-dasharray="{}"/>'
        ).format(style.colour, style.dash or "none"),
        marker(style, 15, 8),
    ]
    return Markup(
        '<svg class="swatch" width="30" height="16" viewBox="0 0 30 16" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))


def columns(count: int, first: float = LEFT) -> list[tuple[float, float]]:
    """Return the left and right edge of each panel."""
    width = (WIDTH - first - RIGHT - PANEL_GAP * (count - 1)) / max(count, 1)
    return [(first + i * (width + PANEL_GAP), first + i * (width + PANEL_GAP) + width) for i in range(count)]


def titled(shape: Markup, title: str) -> Markup:
    """Return a shape with a text to show on hover."""
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


def marker(style: Style, x: float, y: float, size: float = 4.0) -> Markup:
    """Return a method's marker at a place."""
    if style.marker in SHAPES:
        points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in SHAPES[style.marker])
        return Markup('<polygon class="dot" style="fill:{}" points="{}"/>').format(style.colour, points)
    if style.marker == "cross":
        lines = Markup('<path class="cross" style="stroke:{}" d="M{:.1f} {:.1f}l{s} {s}m0 -{s}l-{s} {s}"/>')
        return lines.format(style.colour, x - size * 0.8, y - size * 0.8, s=f"{size * 1.6:.1f}")
    return Markup('<circle class="dot" style="fill:{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(
        style.colour, x, y, size
    )


def text(x: float, y: float, words: str, css: str) -> Markup:
    """Return text at a place; ``css`` names its classes."""
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(x, y, css, words)


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """Return a straight line; ``css`` names its classes."""
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(
        x1, y1, x2, y2, css
    )


def svg(body: Sequence[Markup], height: float, label: str, width: float = WIDTH) -> Markup:
    """Return a figure that scales to the page's width; ``label`` says what it shows, for screen readers."""
    return Markup(
        '<svg class="figure" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>'
    ).format(width, height, escape(label), Markup("").join(body))
