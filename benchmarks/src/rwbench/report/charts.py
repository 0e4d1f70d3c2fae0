"""Drawing with matplotlib: one panel of lines or marks, and figures as files or as SVG that stands in a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from .style import INK, LINE, SOFT, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("templates") / "report.mplstyle"
UNITS = 72
"""Units of an SVG per inch of a figure: a font size of 12 is 12 units."""
TIP = "tip:"


class Point(NamedTuple):
    """A value with its interval, and the text shown on hover."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None
    tip: str = ""


class Line(NamedTuple):
    """One method's points in one panel."""

    label: str
    style: Style
    points: Sequence[Point]


def drawing_style() -> AbstractContextManager[None]:
    """Return the context in which figures of the report are drawn and saved."""
    from matplotlib import rc_context

    return rc_context(fname=STYLE)


@contextmanager
def panels(count: int = 1, width: float = 410, height: float = 296) -> Iterator[tuple[Figure, list[Axes]]]:
    """Give a figure with panels side by side, ``width`` x ``height`` units each, in the report's style.

    What is drawn and saved, is so inside the context.
    """
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(count * width / UNITS, height / UNITS), dpi=UNITS)
        figure.subplots_adjust(
            left=46 / (count * width), right=1 - 34 / (count * width), bottom=44 / height, top=1 - 28 / height
        )
        yield figure, list(figure.subplots(1, count, squeeze=False)[0])


def draw_lines(axes: Axes, lines: Sequence[Line], intervals: bool = True, connected: bool = True) -> None:
    """Draw each line's points with their markers; intervals as whiskers, beside each other where points share an x."""
    log = axes.get_xscale() == "log"
    for slot, line in enumerate(lines):
        # A step aside of at most 5 % (of the value, or of one unit), so that whiskers do not cover each other.
        aside = 0.1 * (slot / max(len(lines) - 1, 1) - 0.5) if intervals and line.style.line != ":" else 0.0
        points = sorted(line.points, key=lambda point: point.x)
        places = [point.x * (1 + 2 * aside) if log else point.x + aside for point in points]
        colour = line.style.colour
        if connected:
            values = [point.value for point in points]
            axes.plot(
                places, values, color=colour, linestyle=line.style.line, linewidth=1.7, label=line.label
            )
        for x, point in zip(places, points, strict=True):
            if intervals and point.low is not None and point.high is not None and line.style.line != ":":
                axes.plot([x, x], [point.low, point.high], color=colour, linewidth=1.1, alpha=0.55)
            mark = axes.plot([x], [point.value], color=colour, marker=line.style.marker, linestyle="none")
            mark[0].set_gid(TIP + point.tip if point.tip else None)
            mark[0].set_markeredgewidth(1.4 if line.style.marker in "x+1" else 0)


def label_ends(axes: Axes, lines: Sequence[Line], gap: float = 0.06, names: bool = False) -> None:
    """Write the value, or value and name, of each line at the right edge that it reaches, none over another."""
    last = max((point.x for line in lines for point in line.points), default=0)
    ends = sorted(
        (p.value, line.style.colour, line.label.partition(",")[0] if names else "")
        for line in lines
        for p in line.points
        if p.x == last
    )
    low, high = axes.get_ylim()
    apart = min(gap, 1 / len(ends)) * (high - low) if ends else 0.0
    places: list[float] = []
    for value, *_ in ends:
        places.append(max(value, places[-1] + apart) if places else value)
    # What was moved above the axes comes down again, and moves those below it.
    most = high
    for at in reversed(range(len(places))):
        places[at] = min(places[at], most)
        most = places[at] - apart
    for (value, colour, name), place in zip(ends, places, strict=True):
        axes.annotate(
            f"{100 * value:.0f} {name}".strip(),
            (1.02, (place - low) / (high - low)),
            xycoords="axes fraction",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def share_axis(axes: Axes) -> None:
    """Make y a share, 0 to 100 %."""
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])


def number_axis(axes: Axes, values: Sequence[float]) -> None:
    """Label x at these values only, millions as such."""
    names = [f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value:,g}" for value in values]
    axes.set_xticks(values, names)
    axes.minorticks_off()


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix; the same figure gives the same bytes."""
    from matplotlib import rc_context
    from ruleworld_data.io import write_whole

    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    buffer, form = io.BytesIO(), path.suffix.lstrip(".")
    if form not in dates:
        raise ValueError(f"a figure is written as .svg, .png or .pdf, got {path.name!r}")
    with rc_context({"svg.hashsalt": "rwbench"}):
        figure.savefig(buffer, format=form, metadata=dates[form], dpi=2 * UNITS, facecolor="white")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, _in_few_colours(buffer) if form == "png" else buffer.getvalue())


def _in_few_colours(png: io.BytesIO) -> bytes:
    """Return a picture in 256 colours, a third as large: a chart of lines has no more that anyone sees."""
    from PIL import Image

    small = io.BytesIO()
    Image.open(png).convert("RGB").quantize(256).save(small, "png", optimize=True)
    return small.getvalue()


def inline_svg(figure: Figure, label: str, css: str = "figure") -> Markup:
    """Return a figure as SVG to stand in a page: text and axes in the page's colours, hover texts, nothing loaded.

    Parameters
    ----------
    figure : Figure
    label : str
        What it shows, for screen readers; ids are keyed by it, so that figures of one page do not share one.
    css : str
        Class of the SVG element.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups()  # type: ignore[union-attr]
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>", "", body, flags=re.S).replace(
        "xlink:href", "href"
    )
    body = re.sub(rf'<g id="{TIP}([^"]*)">', r"<g><title>\1</title>", body)
    # All marks lie inside their axes, so nothing is to be clipped, and no url() is left.
    body = re.sub(r' clip-path="[^"]*"|<clipPath.*?</clipPath>', "", body, flags=re.S)
    body = re.sub(r'<g id="[\w.]+_\d+">', "<g>", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    for colour, name in ((INK, "ink"), (SOFT, "soft"), (LINE, "line")):
        body = body.replace(colour, f"var(--{name})")
    head = Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        css, width, height, label
    )
    return head + Markup(body)


@lru_cache(maxsize=64)
def swatch(style: Style) -> Markup:
    """Return a small line with its marker, for a legend."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(32 / UNITS, 16 / UNITS), dpi=UNITS)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 2), ylim=(-1, 1))
        axes.axis("off")
        axes.plot([0.1, 1.9], [0, 0], color=style.colour, linestyle=style.line, linewidth=1.7)
        axes.plot([1], [0], color=style.colour, marker=style.marker)
        return inline_svg(figure, f"{style.colour} {style.marker}", "swatch")
