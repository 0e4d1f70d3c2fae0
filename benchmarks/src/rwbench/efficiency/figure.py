"""The serving table as a figure: how many times the base model's time, by number of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..report.palette import BLUE, ORANGE, PURPLE, VERMILION
from .plan import METHODS

COLOURS = {
    "dynarule": (VERMILION, "o"),
    "prompting": (BLUE, "s"),
    "inject-all": (ORANGE, "^"),
    "inject-third": (PURPLE, "D"),
}
WIDE = 5.0  # times the base model; below it, powers of ten label no useful place


def draw(table: dict[str, Any], path: Path) -> None:
    """Write an SVG with one panel for time to first token and one for time per token.

    Raises
    ------
    ValueError
        If no cell was measured.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cells = [cell for cell in table["cells"] if cell["status"] == "ok" and cell["rules"]]
    if not cells:
        raise ValueError("no cell with rules was measured, so there is nothing to draw")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = (("ttft_ratio", "time to first token"), ("decode_ratio", "time per further token"))
    for axes, (name, title) in zip(figure.subplots(1, 2), panels, strict=True):
        for method, (colour, marker) in COLOURS.items():
            points = sorted((c["rules"], c[name]) for c in cells if c["method"] == method)
            if not points:
                continue
            rules, found = zip(*points, strict=True)
            middle = [value["median"] for value in found]
            axes.plot(rules, middle, color=colour, marker=marker, label=METHODS[method])
            axes.fill_between(
                rules, [v["q25"] for v in found], [v["q75"] for v in found], color=colour, alpha=0.2
            )
        axes.axhline(1, color="grey", linewidth=0.8)
        far = max(cell[name]["median"] for cell in cells) > WIDE
        axes.set(
            xscale="log",
            yscale="log" if far else "linear",
            xlabel="rules",
            ylabel="times the base model",
            title=title,
        )
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    # Text stays text, and no date or random ids: the same table gives the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rwbench"}):
        figure.savefig(part, format="svg", metadata={"Date": None})
    part.replace(path)
