"""Tables as figures: time as a multiple of the base model's, and of one exact search, by number of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..report.charts import Line, Point, draw_lines, number_axis, panels, save
from ..report.style import STYLES
from .settings import METHODS

STYLE_OF = {
    "dynarule": "dynarule",
    "dynarule-plus": "rag-rrf",
    "dynarule-plus-together": "ircot",
    "prompting": "prompting",
    "inject-all": "srki",
    "inject-third": "kblam",
}
WIDE = 5.0  # times the base model; below it, powers of ten label no useful place


def draw(table: dict[str, Any], path: Path) -> None:
    """Write a figure with one panel for time to first token and one for time per token; whiskers are quartiles.

    Raises
    ------
    ValueError
        If no cell was measured.
    """
    cells = [cell for cell in table["cells"] if cell["status"] == "ok" and cell["rules"]]
    if not cells:
        raise ValueError("no cell with rules was measured, so there is nothing to draw")
    titles = {"ttft_ratio": "time to first token", "decode_ratio": "time per further token"}
    with panels(2) as (figure, both):
        figure.subplots_adjust(wspace=0.25)
        for axes, (name, title) in zip(both, titles.items(), strict=True):
            lines = []
            for method, style in STYLE_OF.items():
                points = [
                    Point(cell["rules"], ratio["median"], ratio["q25"], ratio["q75"])
                    for cell in cells
                    if cell["method"] == method and (ratio := cell[name])
                ]
                lines += [Line(METHODS[method], STYLES[style], points)] if points else []
            far = max(point.value for line in lines for point in line.points) > WIDE
            axes.set(xscale="log", yscale="log" if far else "linear", xlabel="rules", title=title)
            draw_lines(axes, lines)
            axes.axhline(1, color="grey", linewidth=0.8)
            number_axis(axes, sorted({cell["rules"] for cell in cells}))
            if far:
                low, high = axes.get_ylim()
                ticks = [times for times in (1, 2, 5, 10, 20, 50, 100, 1_000) if low <= times <= high]
                axes.set_yticks(ticks, [f"{times:g}" for times in ticks])
        both[0].set_ylabel("times the base model")
        both[1].legend(fontsize=9)
        save(figure, path)


def draw_search(table: dict[str, Any], path: Path) -> None:
    """Write a figure of the time of one exact search by number of rules, both axes in powers of ten."""
    points = [
        Point(cell["rules"], *(cell["ms"][name] for name in ("median", "q25", "q75")))
        for cell in table["cells"]
    ]
    with panels(1) as (figure, (axes,)):
        axes.set(xscale="log", yscale="log", xlabel="rules", ylabel="ms", title="one exact search")
        draw_lines(axes, [Line("exact search", STYLES["dynarule"], points)])
        number_axis(axes, [point.x for point in points])
        save(figure, path)
