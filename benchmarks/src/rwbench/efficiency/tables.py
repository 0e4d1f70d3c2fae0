"""A results file as Markdown, and as what the targets say of it."""

from __future__ import annotations

from typing import Any

from .plan import DTYPES, METHODS
from .shapes import shape_of

Table = dict[str, Any]


def targets(table: Table) -> list[dict[str, Any]]:
    """Return the targets for DynaRule: name, limit, measured value (None: not measured) and whether it is met."""
    settings = table["settings"]
    cells = {c["rules"]: c for c in table["cells"] if c["method"] == "dynarule" and c["status"] == "ok"}

    def ttft(rules: int) -> float | None:
        return cells[rules]["ttft_ratio"]["median"] if rules in cells else None

    decode = [cell["decode_ratio"]["median"] for cell in cells.values()]
    sizes = [c["bytes_per_rule"] for c in cells.values() if c.get("bytes_per_rule")]
    held = [sum(size.values()) for size in sizes]  # an index counts too
    layers = shape_of(settings["shape"]).layers
    room = 2 * settings["encoder_dim"] * DTYPES[settings["embeddings"]] + 4 * layers
    rows: list[tuple[str, float, float | None]] = [
        ("TTFT at 10,000 rules, times M = 0", 1.35, ttft(10_000)),
        ("TTFT at 1,000,000 rules, times M = 0", 3.0, ttft(1_000_000)),
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
    clock = "CPU time" if settings["device"] == "cpu" and settings["threads"] == 1 else "wall clock"
    lines = [
        f"{settings['shape']}-shaped model with random weights, {settings['dtype']}, {settings['device']}, "
        f"{settings['threads']} thread(s), prompt of {settings['prompt_tokens']} tokens; "
        f"P = {settings['encoder_dim']}, embeddings {settings['embeddings']}, mapped from disk; "
        f"K = {settings['top_k']}. Medians of {clock}; ratios (quartiles) to the same model without rules, measured in "
        f"turns. Memory is read at {table['bandwidth_gb_s']:g} GB/s.",
        "",
        "| method | rules | TTFT ms | x M=0 | decode ms | x M=0 | `<search>` ms | selection ms (floor) | peak MB "
        "(M=0) | bytes per rule | n |",
        "| --- |" + " ---: |" * 10,
    ]
    order = list(METHODS)
    for cell in sorted(table["cells"], key=lambda c: (order.index(c["method"]), c["rules"])):
        name = METHODS[cell["method"]]
        if cell["status"] != "ok":
            lines.append(f"| {name} | {cell['rules']:,} | {cell['note']} |" + " |" * 8)
            continue
        index = f" ({cell['index']})" if cell.get("index", "exact") != "exact" else ""
        size = sum(cell.get("bytes_per_rule", {}).values())
        lines.append(
            f"| {name}{index} | {cell['rules']:,} | {_middle(cell, 'ttft_ms')} | {_ratio(cell, 'ttft_ratio')} | "
            f"{_middle(cell, 'decode_ms')} | {_ratio(cell, 'decode_ratio')} | {_middle(cell, 'search_ms')} | "
            f"{_middle(cell, 'select_ms')}{_floor(cell)} | {cell['peak_mb']:,.0f} ({cell['base_peak_mb']:,.0f}) | "
            f"{f'{size:,.0f}' if size else '-'} | {cell['repeats']} |"
        )
    return "\n".join([*lines, "", *target_lines(targets(table))])


def training_markdown(table: Table) -> str:
    """Return the parts of a training step, their ratio and the profile."""
    settings, ratio = table["settings"], table["ratio"]
    lines = [
        f"{settings['shape']}-shaped model with random weights, {settings['dtype']}, {settings['device']}, "
        f"{settings['threads']} thread(s): batch {settings['batch']} of {settings['tokens']} tokens, "
        f"{settings['accumulation']} batches per step, M = {settings['rules']:,}, K = {settings['top_k']}, "
        f"P = {settings['encoder_dim']}. Median ms over {ratio['n']} pairs.",
        "",
        "| rules | forward | backward | optimizer | step |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in ("without", "with"):
        parts = (
            f"{table[name][part]['median']:,.0f}" for part in ("forward", "backward", "optimizer", "step")
        )
        lines.append(f"| {name} | {' | '.join(parts)} |")
    verdict = "met" if table["met"] else "missed"
    lines += [
        "",
        f"A step with rules takes {ratio['median']:.2f} ({ratio['q25']:.2f}-{ratio['q75']:.2f}) times one without; "
        f"at most {table['limit']:g}: {verdict}.",
        "",
        "| operation, ms of one batch and update | without | with |",
        "| --- | ---: | ---: |",
    ]
    lines += [
        f"| `{row['operation']}` | {row['without']:,.1f} | {row['with']:,.1f} |" for row in table["profile"]
    ]
    return "\n".join(lines)


def recall_markdown(table: Table) -> str:
    """Return recall and time of every index."""
    lines = [
        f"{table['real_rules']:,} rules of RuleWorld and {table['drawn_rules']:,} drawn between two of them; "
        f"{table['queries']} held-out questions, one at a time, through a trained projection "
        f"(gold rule first for {100 * table['gold_recall_at_1']:.0f} % among the real rules); "
        f"{table['settings']['threads']} thread(s), "
        f"{'CPU time' if table['settings']['threads'] == 1 else 'wall clock'}.",
        "",
        "| index | Recall@1 | Recall@10 | Recall@100 | ms per query | exact ms | build s | bytes per rule |",
        "| --- |" + " ---: |" * 7,
    ]
    for cell in table["cells"]:
        if cell["status"] != "ok":
            lines.append(f"| {cell['index']} | {cell['note']} |" + " |" * 6)
            continue
        recalls = " | ".join(f"{cell['recall'][k]:.3f}" for k in ("1", "10", "100"))
        lines.append(
            f"| {cell['index']} | {recalls} | {cell['ms']:.2f} | {cell['exact_ms']:.2f} | {cell['build_s']:.0f} | "
            f"{cell['bytes_per_rule']} |"
        )
    return "\n".join(lines)


def target_lines(found: list[dict[str, Any]]) -> list[str]:
    """Return the targets as a Markdown table."""
    verdicts = {True: "met", False: "missed", None: "not measured"}
    lines = ["| target | at most | measured | |", "| --- | ---: | ---: | --- |"]
    for target in found:
        value = "-" if target["value"] is None else f"{target['value']:,.4g}"
        lines.append(f"| {target['name']} | {target['limit']:,g} | {value} | {verdicts[target['met']]} |")
    return lines


def _middle(cell: dict[str, Any], name: str) -> str:
    return f"{cell[name]['median']:,.1f}" if name in cell else "-"


def _ratio(cell: dict[str, Any], name: str) -> str:
    found = cell[name]
    return f"{found['median']:.2f} ({found['q25']:.2f}-{found['q75']:.2f})"


def _floor(cell: dict[str, Any]) -> str:
    return f" ({cell['select_floor_ms']:,.1f})" if "select_floor_ms" in cell else ""
