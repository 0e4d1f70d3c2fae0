"""Results as Markdown and as a figure: times as multiples of the base model's, by number of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..markdown import markdown_table
from ..report.charts import Line, Point, draw_lines, drawing_style, legend, number_axis, save, stacked
from ..report.style import styles
from .settings import METHODS, PLUS

HEAD = (
    "method", "rules", "TTFT ms", "x M=0", "decode ms", "x M=0", "`<search>` ms", "peak MB (M=0)", "bytes per rule",
    "n",
)  # fmt: skip
TICKS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1_000)


def serving_markdown(table: dict[str, Any]) -> str:
    """Return the table of cells with its caption."""
    settings = table["settings"]
    shape, dtype, device, threads = (settings[name] for name in ("shape", "dtype", "device", "threads"))
    shared = " and ".join(
        f"{settings[name]:,} different {name}" for name in ("premises", "conclusions") if settings.get(name)
    )
    plus = any(cell["method"].startswith("dynarule-plus") for cell in table["cells"])
    kept = f"{settings['top_k']}" + (f", of DynaRule+ {PLUS['top_k']}" if plus else "")
    clock = "CPU time" if device == "cpu" and threads == 1 else "wall clock"
    caption = (
        f"{shape}-shaped model with random weights, {dtype}, {device}, {threads} thread(s), "
        f"prompt of {settings['prompt_tokens']} tokens; "
        f"P = {settings['encoder_dim']}{f' of {shared}' * bool(shared)}, embeddings {settings['embeddings']}, mapped "
        f"from disk; K = {kept}. Medians of {clock}; ratios (quartiles) to the same model without rules, measured in "
        "turns."
    )
    order = list(METHODS)
    cells = sorted(table["cells"], key=lambda cell: (order.index(cell["method"]), cell["rules"]))
    return f"{caption}\n\n{markdown_table(HEAD, map(_row, cells))}"


def _row(cell: dict[str, Any]) -> list[str]:
    name, rules = METHODS[cell["method"]], f"{cell['rules']:,}"
    if cell["status"] != "ok":
        return [name, rules, cell["note"], *[""] * (len(HEAD) - 3)]
    if cell.get("index", "exact") != "exact":
        name += f" ({cell['index']})"
    ttft, decode, search = (
        f"{cell[f'{key}_ms']['median']:,.1f}" if f"{key}_ms" in cell else "-"
        for key in ("ttft", "decode", "search")
    )
    if "cold_ttft_ms" in cell:
        ttft += f" ({cell['cold_ttft_ms']['median']:,.1f} cold)"
    size = sum(cell["bytes_per_rule"].values())
    return [
        *(name, rules, ttft, _ratio(cell["ttft_ratio"]), decode, _ratio(cell["decode_ratio"]), search),
        f"{cell['peak_mb']:,.0f} ({cell['base_peak_mb']:,.0f})",
        f"{size:,.0f}" if size else "-",
        str(cell["repeats"]),
    ]


def _ratio(spread: dict[str, float]) -> str:
    return "{median:.2f} ({q25:.2f}-{q75:.2f})".format(**spread)


def draw(table: dict[str, Any], path: Path) -> None:
    """Write a figure with a panel for the first token and one for a further token; whiskers are quartiles.

    Raises
    ------
    ValueError
        If no cell with rules was measured.
    """
    cells = [cell for cell in table["cells"] if cell["status"] == "ok" and cell["rules"]]
    if not cells:
        raise ValueError("no cell with rules was measured, so there is nothing to draw")
    drawn = styles(METHODS)
    titles = {
        "ttft_ratio": "First token, times the base model's",
        "decode_ratio": "Further token, times the base model's",
    }
    with drawing_style():
        figure, axes_of = stacked([*titles.values()])
        for axes, name in zip(axes_of, titles, strict=True):
            lines = []
            for method, label in METHODS.items():
                points = [
                    Point(cell["rules"], ratio["median"], ratio["q25"], ratio["q75"])
                    for cell in cells
                    if cell["method"] == method and (ratio := cell[name])
                ]
                lines += [Line(label, drawn[method], points)] if points else []
            axes.set(xscale="log", yscale="log", xlabel="rules")
            draw_lines(axes, lines)
            axes.axhline(1, color="grey", linewidth=0.8)
            number_axis(axes, sorted({cell["rules"] for cell in cells}))
            low, high = axes.get_ylim()
            ticks = [tick for tick in TICKS if low <= tick <= high]
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axes.set_yticks([], minor=True)
            legend(axes)
        save(figure, path)
