"""The figure of a setting, drawn with matplotlib: accuracy by number of rules."""

import io
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ruleworld_data.io import write_whole

from .setting import ANSWERS, Line, Setting, macro

STYLE = Path(__file__).with_name("templates") / "report.mplstyle"
"""The ten colours of its cycle are at least 17 (CIE 1976) apart for readers with normal, protanopic and deuteranopic
vision, and stand out from white and from dark paper."""
MARKERS = "os^DvpXP<>"
UNITS = 72
"""Units of an SVG per inch of a figure: a font size of 12 is 12 units."""
PHONE, PANEL = 410, 330
"""Width of a figure and height of each of its panels: letters keep their size on a phone."""


def competing(setting: Setting) -> list[Line]:
    """Return each method that competes with its best search and settings, of its first training, best first."""
    runs = [run for run in setting.runs if "seed" not in run["spec"]["method"].get("variant", "")]
    best: dict[str, Line] = {}
    for line in Setting(tuple(runs)).lines if runs else ():
        is_line = len(setting.sizes) == 1 or max(Counter(form for form, _ in line.runs).values()) > 1
        if is_line and not line.is_reference:
            spec = next(iter(line.runs.values()))["spec"]["method"]
            # a variant that is no seed is a method of its own
            name = f"{spec['name']} {spec.get('variant', '')}" if setting.lead == ANSWERS else line.key
            best.setdefault(name, line)
    return [*best.values()] or setting.lines


def by_size(setting: Setting) -> Figure | None:
    """Draw the lead metric against pool size, a line per method of `competing` with its name."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    methods = competing(setting)
    places = {line.label: place for place, line in enumerate(methods)}
    for form, line in product(setting.representations, methods):
        runs = [(size, line.runs.get((form, size))) for size in setting.sizes]
        points = [(float(size), e["value"]) for size, run in runs if run and (e := macro(run, setting.lead))]
        if points:
            lines.setdefault(form, {})[line.label] = points
    if not lines:
        return None
    name = setting.lead.replace("_", " ").capitalize()
    figure, axes_of = stacked([f"{name}, {form.upper()}" for form in lines])
    for axes, of_form in zip(axes_of, lines.values(), strict=True):
        axes.set(xlabel="rules in the pool", xscale="log", ylim=(-0.02, 1.02))
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        last = max(points[-1][0] for points in of_form.values())
        for label, points in of_form.items():
            style = f"C{places[label]}{MARKERS[places[label] % len(MARKERS)]}-"
            axes.plot(*zip(*points, strict=True), style, markeredgewidth=0, linewidth=1.7, label=label)
        ends = {label: points[-1][1] for label, points in of_form.items() if points[-1][0] == last}
        label_ends(axes, [(y, f"C{places[label]}", label.partition(",")[0]) for label, y in ends.items()])
        names = [f"{size / 1e6:.3g} M" if size >= 1e6 else f"{size:,g}" for size in setting.sizes]
        axes.set_xticks(setting.sizes, names)
        axes.minorticks_off()
    return figure


def stacked(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel above the other, and room for names at their right."""
    height = len(titles) * PANEL
    figure = Figure(figsize=(PHONE / UNITS, height / UNITS), dpi=UNITS)
    figure.subplots_adjust(left=0.12, right=0.54, bottom=40 / height, top=1 - 33 / height, hspace=0.3)
    axes_of = list(figure.subplots(len(titles), 1, squeeze=False)[:, 0])
    for axes, title in zip(axes_of, titles, strict=True):
        axes.set_title(title)
    return figure, axes_of


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


def write_figure(setting: Setting, path: Path) -> None:
    """Draw the lead metric against pool size in a file (``.png``, ``.svg``, ``.pdf``); a ValueError without numbers."""
    with rc_context(fname=STYLE):
        figure = by_size(setting)
        if figure is None:
            raise ValueError("these runs have no metric to draw; finish a run first: rwbench run smoke")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, drawn(figure, path.suffix.lstrip(".")))


def drawn(figure: Figure, form: str, **options: Any) -> bytes:
    """Return a figure's bytes, without the date: the same figure gives the same."""
    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=dates.get(form), **options)
    return buffer.getvalue()
