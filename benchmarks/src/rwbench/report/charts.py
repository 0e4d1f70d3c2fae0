"""Drawing with matplotlib: lines with their intervals, axes, and figures as files or in a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from .style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("templates") / "report.mplstyle"
UNITS = 72
"""Units of an SVG per inch of a figure: a font size of 12 is 12 units."""
PHONE, PANEL = 410, 330
"""Width of a figure and height of each of its panels: letters keep their size on a phone."""


def drawing_style() -> AbstractContextManager[None]:
    """Return the context in which figures of the report are drawn and saved."""
    from matplotlib import rc_context

    return rc_context(fname=STYLE)


def stacked(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel above the other, and room for names at their right."""
    from matplotlib.figure import Figure

    height = len(titles) * PANEL
    figure = Figure(figsize=(PHONE / UNITS, height / UNITS), dpi=UNITS)
    figure.subplots_adjust(left=0.12, right=0.58, bottom=40 / height, top=1 - 33 / height, hspace=0.3)
    axes_of = list(figure.subplots(len(titles), 1, squeeze=False)[:, 0])
    for axes, title in zip(axes_of, titles, strict=True):
        axes.set_title(title)
    return figure, axes_of


def draw_line(axes: Axes, points: Sequence[tuple[float, float]], style: Style, label: str) -> None:
    """Draw a method's points with their markers."""
    x, y = zip(*sorted(points), strict=True)
    (line,) = axes.plot(x, y, style.line, color=style.colour, marker=style.marker, linewidth=1.7, label=label)
    line.set_markeredgewidth(1.4 if style.marker in "x+1" else 0)


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write value and name (value, colour, name) at the right edge, none over another."""
    low, high = axes.get_ylim()
    apart = min(0.06, 1 / len(ends)) * (high - low) if ends else 0.0
    places: list[float] = []
    for value, *_ in sorted(ends):
        places.append(max(value, places[-1] + apart) if places else value)
    # What was moved above the axes comes down again, and moves those below it.
    ceiling = high
    for slot in reversed(range(len(places))):
        places[slot] = min(places[slot], ceiling)
        ceiling = places[slot] - apart
    for (value, colour, name), place in zip(sorted(ends), places, strict=True):
        axes.annotate(
            f"{100 * value:.0f} {name}",
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


def legend(axes: Axes) -> None:
    """Write the names at the right, in lines that fit the room there."""
    marks, labels = axes.get_legend_handles_labels()
    names = [fill(label, 24) for label in labels]
    axes.legend(marks, names, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix (.svg, .png, .pdf); the same figure gives the same bytes."""
    from ruleworld_data.io import write_whole

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, rendered(figure, path.suffix.lstrip(".")))


def data_uri(figure: Figure) -> str:
    """Return a figure as the address of a picture that stands in the page itself."""
    svg = rendered(figure, "svg", bbox_inches="tight")
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def rendered(figure: Figure, form: str, **options: Any) -> bytes:
    """Return a figure's bytes, without the date."""
    from matplotlib import rc_context

    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "rwbench"}):
        figure.savefig(
            buffer, format=form, metadata=dates.get(form), dpi=2 * UNITS, facecolor="white", **options
        )
    return buffer.getvalue()
