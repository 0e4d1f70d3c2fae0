"""Results files as Markdown, and as what the targets say of them."""

from __future__ import annotations

from typing import Any

from ..markdown import markdown_table
from .results_file import Table
from .settings import DTYPES, METHODS, PLUS
from .workload import SHAPES

VERDICTS = {True: "met", False: "missed", None: "not measured"}


def targets(table: Table) -> list[dict[str, Any]]:
    """Return the targets for DynaRule: name, limit, measured value (None: not measured) and whether it is met."""
    settings = table["settings"]
    cells = {c["rules"]: c for c in table["cells"] if c["method"] == "dynarule" and c["status"] == "ok"}
    ttft = {rules: cell["ttft_ratio"]["median"] for rules, cell in cells.items()}
    decode = [cell["decode_ratio"]["median"] for cell in cells.values()]
    held = [sum(c["bytes_per_rule"].values()) for c in cells.values() if c.get("bytes_per_rule")]
    room = 2 * settings["encoder_dim"] * DTYPES[settings["embeddings"]] + 4 * SHAPES[settings["shape"]].layers
    rows: list[tuple[str, float, float | None]] = [
        ("TTFT at 10,000 rules, times M = 0", 1.35, ttft.get(10_000)),
        ("TTFT at 1,000,000 rules, times M = 0", 3.0, ttft.get(1_000_000)),
        ("decode at any M, times M = 0", 1.08, max(decode, default=None)),
        ("bytes per rule: two embeddings and one number per layer", room, max(held, default=None)),
    ]
    return [
        {"name": name, "limit": limit, "value": value, "met": None if value is None else value <= limit}
        for name, limit, value in rows
    ]


def serving_markdown(table: Table) -> str:
    """Return the table of cells, then the targets."""
    settings = table["settings"]
    plus = any(cell["method"].startswith("dynarule-plus") for cell in table["cells"])
    kept = f"{settings['top_k']}" + (f", of DynaRule+ {PLUS['top_k']}" if plus else "")
    caption = (
        f"{_model(settings)}, prompt of {settings['prompt_tokens']} tokens; "
        f"P = {settings['encoder_dim']}{_shared(settings)}, embeddings {settings['embeddings']}, mapped from disk; "
        f"K = {kept}. Medians of {_clock(settings)}; ratios (quartiles) to the same model without rules, "
        f"measured in turns. Memory is read at {table['bandwidth_gb_s']:g} GB/s."
    )
    head = (
        "method", "rules", "TTFT ms", "x M=0", "decode ms", "x M=0", "`<search>` ms", "selection ms (floor)",
        "peak MB (M=0)", "bytes per rule", "n",
    )  # fmt: skip
    order = list(METHODS)
    cells = sorted(table["cells"], key=lambda cell: (order.index(cell["method"]), cell["rules"]))
    judged = [
        (
            target["name"],
            f"{target['limit']:,g}",
            "-" if target["value"] is None else f"{target['value']:,.4g}",
            VERDICTS[target["met"]],
        )
        for target in targets(table)
    ]
    return "\n\n".join(
        [
            caption,
            markdown_table(head, map(_serving_row, cells)),
            markdown_table(("target", "at most", "measured", ""), judged, "lrrl"),
        ]
    )


def _shared(settings: dict[str, Any]) -> str:
    """Say how many embeddings the rules share, if they do."""
    parts = [
        f"{settings[name]:,} different {name}" for name in ("premises", "conclusions") if settings.get(name)
    ]
    return f" of {' and '.join(parts)}" if parts else ""


def _serving_row(cell: dict[str, Any]) -> list[str]:
    name, rules = METHODS[cell["method"]], f"{cell['rules']:,}"
    if cell["status"] != "ok":
        return [name, rules, cell["note"], *[""] * 8]
    if cell.get("index", "exact") != "exact":
        name += f" ({cell['index']})"
    size = sum(cell.get("bytes_per_rule", {}).values())
    floor = f" ({cell['select_floor_ms']:,.1f})" if "select_floor_ms" in cell else ""
    ttft, decode, search, select = (
        f"{cell[f'{key}_ms']['median']:,.1f}" if f"{key}_ms" in cell else "-"
        for key in ("ttft", "decode", "search", "select")
    )
    if "cold_ttft_ms" in cell:
        ttft += f" ({cell['cold_ttft_ms']['median']:,.1f} cold)"
    return [
        *(name, rules, ttft, _ratio(cell["ttft_ratio"]), decode, _ratio(cell["decode_ratio"]), search),
        select + floor,
        f"{cell['peak_mb']:,.0f} ({cell['base_peak_mb']:,.0f})",
        f"{size:,.0f}" if size else "-",
        str(cell["repeats"]),
    ]


def training_markdown(table: Table) -> str:
    """Return the parts of a training step, their ratio and the profile."""
    settings, ratio = table["settings"], table["ratio"]
    caption = (
        f"{_model(settings)}: batch {settings['batch']} of {settings['tokens']} tokens, "
        f"{settings['accumulation']} batches per step, M = {settings['rules']:,}, K = {settings['top_k']}, "
        f"P = {settings['encoder_dim']}. Median ms over {ratio['n']} pairs."
    )
    parts = ("forward", "backward", "optimizer", "step")
    times = [
        (name, *(f"{table[name][part]['median']:,.0f}" for part in parts)) for name in ("without", "with")
    ]
    sentence = (
        f"A step with rules takes {_ratio(ratio, '{} ({}-{}) times')} one without; at most {table['limit']:g}: "
        f"{VERDICTS[table['met']]}."
    )
    profile = [
        (f"`{row['operation']}`", f"{row['without']:,.1f}", f"{row['with']:,.1f}") for row in table["profile"]
    ]
    return "\n\n".join(
        [
            caption,
            markdown_table(("rules", *parts), times),
            sentence,
            markdown_table(("operation, ms of one batch and update", "without", "with"), profile),
        ]
    )


def recall_markdown(table: Table) -> str:
    """Return recall and time of every index."""
    caption = (
        f"{table['real_rules']:,} rules of RuleWorld and {table['drawn_rules']:,} drawn between two of them; "
        f"{table['queries']} held-out questions, one at a time, through a trained projection "
        f"(gold rule first for {100 * table['gold_recall_at_1']:.0f} % among the real rules); "
        f"{table['settings']['threads']} thread(s), {_clock(table['settings'])}."
    )
    head = (
        "index", "Recall@1", "Recall@10", "Recall@100", "ms per query", "exact ms", "build s", "bytes per rule",
    )  # fmt: skip
    rows = [
        (
            cell["index"],
            *(f"{cell['recall'][k]:.3f}" for k in ("1", "10", "100")),
            *(f"{cell[name]:.2f}" for name in ("ms", "exact_ms")),
            f"{cell['build_s']:.0f}",
            str(cell["bytes_per_rule"]),
        )
        if cell["status"] == "ok"
        else (cell["index"], cell["note"], *[""] * 6)
        for cell in table["cells"]
    ]
    return f"{caption}\n\n{markdown_table(head, rows)}"


def search_markdown(table: dict[str, Any]) -> str:
    """Return the table of exact search by number of rules."""
    settings = table["settings"]
    caption = (
        f"One query over embeddings of width {settings['encoder_dim']} in {settings['embeddings']}, mapped from disk, "
        f"exact, K = {settings['top_k']}; {settings['threads']} thread(s), {_clock(settings)}; median (quartiles)."
    )
    rows = [
        (
            f"{cell['rules']:,}",
            "{median:.2f} ({q25:.2f}-{q75:.2f})".format(**cell["ms"]),
            f"{cell['megabytes']:,.1f}",
            f"{cell['peak_mb']:,.0f}",
        )
        for cell in table["cells"]
    ]
    text = f"{caption}\n\n{markdown_table(('rules', 'ms', 'MB read', 'peak MB'), rows)}"
    return (
        text
        if table["slope"] is None
        else f"{text}\n\nTime grows with the rules to the power {table['slope']:.2f}."
    )


def _model(settings: dict[str, Any]) -> str:
    shape, dtype, device, threads = (settings[name] for name in ("shape", "dtype", "device", "threads"))
    return f"{shape}-shaped model with random weights, {dtype}, {device}, {threads} thread(s)"


def _clock(settings: dict[str, Any]) -> str:
    on_one_core = settings.get("device", "cpu") == "cpu" and settings["threads"] == 1
    return "CPU time" if on_one_core else "wall clock"


def _ratio(spread: dict[str, Any], template: str = "{} ({}-{})") -> str:
    return template.format(*(f"{spread[name]:.2f}" for name in ("median", "q25", "q75")))
