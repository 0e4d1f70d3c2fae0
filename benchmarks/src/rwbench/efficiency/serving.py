"""Serving cost by number of rules: time to first token, time per token and per search, memory.

Base model and method take turns: a prefill of one, a prefill of the other, then token by token, so whatever else the
machine does falls on both, and ratios are of neighbours in time.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import torch
from ruleworld_data.io import worker_pool, write_whole

from ..run.environment import environment
from .methods import METHODS, PLUS, Condition, build, obstacle
from .workload import Settings, peak_mb, random_model, random_tokens, reset_peak, spread

Figures = dict[str, Any]
HEAD = (
    "method", "rules", "TTFT ms", "x M=0", "decode ms", "x M=0", "`<search>` ms", "peak MB (M=0)", "bytes per rule",
    "n",
)  # fmt: skip


def in_own_process(settings: Settings, method: str, rules: int) -> Figures:
    """Measure a cell in a new process, whose peak of memory is the cell's."""
    with worker_pool(1, threads=1) as pool:
        return pool.submit(measure_cell, settings, method, rules).result()


def measure(
    settings: Settings,
    cells: Iterable[tuple[str, int]],
    path: Path,
    note: Callable[[str], None] = print,
    run: Callable[[Settings, str, int], Figures] = in_own_process,
) -> dict[str, Any]:
    """Measure cells (method, number of rules), and write the results file ``path`` after each; return the whole table.

    A process that was killed, most likely for memory, is a failed cell.
    """
    table: dict[str, Any] = {"schema_version": 1, "kind": "serving", "settings": asdict(settings)}
    table |= {"environment": environment(), "cells": []}
    path.parent.mkdir(parents=True, exist_ok=True)
    for method, rules in cells:
        note(f"{method}, {rules:,} rules")
        if why := obstacle(settings, method, rules):
            figures: Figures = {"status": "not_run", "note": why}
        else:
            try:
                figures = {"status": "ok"} | run(settings, method, rules)
            except (RuntimeError, MemoryError, OSError) as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                figures = {"status": "failed", "note": what}
        table["cells"].append({"method": method, "rules": rules} | figures)
        write_whole(path, json.dumps(table, indent=1, allow_nan=False) + "\n")
    return table


def measure_cell(settings: Settings, name: str, rules: int) -> Figures:
    """Return the figures of a method with so many rules, in ms and MB."""
    torch.set_num_threads(1)
    device, count = settings.device, settings.prompt_tokens + settings.new_tokens
    tokens = random_tokens(count, settings.search_token, settings.seed, device)
    base = Condition(random_model(settings), tokens[:, : settings.prompt_tokens])
    new = tokens[:, settings.prompt_tokens :].split(1, 1)
    reset_peak(device)
    base.prefill(device)
    base.step(new[0], device)
    figures: Figures = {"base_peak_mb": round(peak_mb(device), 1)}
    with TemporaryDirectory() as folder:
        method = build(settings, name, rules, base, Path(folder))
        if name != "prompting":  # it runs the base model's code, and a prefill is long
            method.prefill(device)
            method.step(new[0], device)
        reset_peak(device)
        search = [torch.full_like(new[0], settings.search_token)] if method.searches else []
        steps = [*(("decode", token) for token in new), *(("search", token) for token in search)]
        pairs: dict[str, list[list[float]]] = defaultdict(list)  # by what is timed, ms of base and of method
        repeats, end = 0, time.perf_counter() + settings.cell_seconds
        while repeats < settings.repeats and (not repeats or time.perf_counter() < end):
            turn = -1 if repeats % 2 else 1  # each goes first in every other repeat
            order = [base, method][::turn]
            pairs["ttft"].append([one.prefill(device) for one in order][::turn])
            for what, ids in steps:
                pairs[what].append([one.step(ids, device) for one in order][::turn])
            repeats += 1
        for what, times in pairs.items():
            theirs, ours = zip(*times, strict=True)
            figures[f"{what}_ms"], figures[f"base_{what}_ms"] = spread(ours), spread(theirs)
            figures[f"{what}_ratio"] = spread([b / a for a, b in times])
        figures |= {"repeats": repeats, "peak_mb": round(peak_mb(device), 1)}
        if method.cold is not None:
            times_ms = [method.cold().prefill(device) for _ in range(max(3, settings.repeats))]
            figures["cold_ttft_ms"] = spread(times_ms)
    return figures | {"bytes_per_rule": method.bytes_per_rule}


def serving_markdown(table: dict[str, Any]) -> str:
    """Return a table in Markdown with its caption: times as multiples of the base model's, by number of rules."""
    from ..report.tables import table_of  # with pandas, which is none of a cell's memory

    settings = table["settings"]
    shared = " and ".join(
        f"{settings[name]:,} different {name}" for name in ("premises", "conclusions") if settings.get(name)
    )
    plus = any(cell["method"].startswith("dynarule-plus") for cell in table["cells"])
    kept = f"{settings['top_k']}" + (f", of DynaRule+ {PLUS['top_k']}" if plus else "")
    clock = "CPU time" if settings["device"] == "cpu" else "wall clock"
    caption = (
        f"{settings['shape']}-shaped model with random weights, {settings['dtype']}, {settings['device']}, "
        f"1 thread(s), prompt of {settings['prompt_tokens']} tokens; "
        f"P = {settings['encoder_dim']}{f' of {shared}' * bool(shared)}, embeddings {settings['embeddings']}, mapped "
        f"from disk; K = {kept}. Medians of {clock}; ratios (quartiles) to the same model without rules, measured in "
        "turns."
    )
    order = list(METHODS)
    cells = sorted(table["cells"], key=lambda cell: (order.index(cell["method"]), cell["rules"]))
    return f"{fill(caption, 120)}\n\n{table_of(HEAD, map(_row, cells))}"


def _row(cell: Figures) -> list[str]:
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
