"""Results as Markdown: times as multiples of the base model's, by number of rules."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from ..markdown import markdown_table
from .settings import METHODS, PLUS

HEAD = (
    "method", "rules", "TTFT ms", "x M=0", "decode ms", "x M=0", "`<search>` ms", "peak MB (M=0)", "bytes per rule",
    "n",
)  # fmt: skip


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
    return f"{fill(caption, 120)}\n\n{markdown_table(HEAD, map(_row, cells))}"


def _row(cell: dict[str, Any]) -> list[str]:
    name, rules = METHODS[cell["method"]], f"{cell['rules']:,}"
    if cell["status"] != "ok":
        return [name, rules, cell["note"], *[""] * (len(HEAD) - 3)]
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
