"""Serving cost by number of rules: time to first token, time per token and per search, memory.

Base model and method take turns: a prefill of one, a prefill of the other, then token by token, so whatever else the
machine does falls on both, and ratios are of neighbours in time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ruleworld_data.io import start_worker, write_whole

from ..run.environment import environment
from .methods import Condition, build
from .settings import DTYPES, Cell, Settings
from .workload import peak_mb, random_model, random_tokens, reset_peak, spread

Table = dict[str, Any]
Figures = dict[str, Any]


def in_own_process(settings: Settings, cell: Cell, cache: Path) -> Figures:
    """Measure a cell in a new process, whose peak of memory is the cell's."""
    spawned = get_context("spawn")
    with ProcessPoolExecutor(1, spawned, start_worker, (settings.threads,)) as pool:
        return pool.submit(measure_cell, settings, cell, cache).result()


def measure(
    settings: Settings,
    cells: Sequence[Cell],
    path: Path,
    cache: Path,
    note: Callable[[str], None] = print,
    run: Callable[[Settings, Cell, Path], Figures] = in_own_process,
) -> Table:
    """Measure cells one after another, and write the results file ``path`` after each; return the whole table.

    ``cache`` is the folder of random embeddings. A process that was killed, most likely for memory, is a failed cell.
    """
    head = {"schema_version": 1, "kind": "serving", "settings": asdict(settings)}
    table: Table = head | {"environment": environment(), "cells": []}
    path.parent.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        note(f"{cell.method}, {cell.rules:,} rules")
        if obstacle := cell.obstacle(settings):
            figures: Figures = {"status": "not_run", "note": obstacle}
        else:
            try:
                figures = {"status": "ok"} | run(settings, cell, cache)
            except (RuntimeError, MemoryError, OSError) as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                figures = {"status": "failed", "note": what}
        table["cells"].append({"method": cell.method, "rules": cell.rules} | figures)
        write_whole(path, json.dumps(table, indent=1, allow_nan=False) + "\n")
    return table


def measure_cell(settings: Settings, cell: Cell, cache: Path) -> Figures:
    """Return a cell's figures, in ms and MB."""
    import torch

    torch.set_num_threads(settings.threads)
    shape, device = settings.sizes, settings.device
    model = random_model(shape, device, getattr(torch, DTYPES[settings.dtype]), settings.seed)
    count = settings.prompt_tokens + settings.new_tokens
    tokens = random_tokens(count, shape.search_token, settings.seed, device)
    base = Condition(model, tokens[:, : settings.prompt_tokens])
    new = tokens[:, settings.prompt_tokens :].split(1, 1)
    reset_peak(device)
    base.prefill(device)
    base.step(new[0], device)
    base_peak = peak_mb(device)
    method = build(settings, cell, base, cache)
    if cell.method != "prompting":  # it runs the base model's code, and a prefill is long
        method.prefill(device)
        method.step(new[0], device)
    reset_peak(device)
    repeats, started = 0, time.perf_counter()
    while repeats < settings.repeats and (
        not repeats or time.perf_counter() - started < settings.cell_seconds
    ):
        order = [base, method] if repeats % 2 == 0 else [method, base]
        for condition in order:
            condition.times["ttft"].append(condition.prefill(device))
        search = [torch.full_like(new[0], shape.search_token)] if method.searches else []
        for name, ids in (*(("decode", token) for token in new), *(("search", token) for token in search)):
            for condition in order:
                condition.times[name].append(condition.step(ids, device))
        repeats += 1
    return {
        "repeats": repeats,
        **_times(settings, base, method),
        "peak_mb": round(peak_mb(device), 1),
        "base_peak_mb": round(base_peak, 1),
        **_cold(settings, method),
        **method.facts,
    }


def _times(settings: Settings, base: Condition, method: Condition) -> Figures:
    """Return times of both and the ratio of each pair, of neighbours in time."""
    figures: Figures = {}
    for name in method.times:
        ours, theirs = (
            [1e3 * seconds[settings.by_cpu_time] for seconds in side.times[name]] for side in (method, base)
        )
        figures[f"{name}_ms"], figures[f"base_{name}_ms"] = spread(ours), spread(theirs)
        figures[f"{name}_ratio"] = spread([a / b for a, b in zip(ours, theirs, strict=True)])
    return figures


def _cold(settings: Settings, method: Condition) -> Figures:
    """Return the time to first token where no rule was read before, for a method that keeps what it read."""
    if method.cold is None:
        return {}
    times = [method.cold().prefill(settings.device) for _ in range(max(3, settings.repeats))]
    return {"cold_ttft_ms": spread([1e3 * seconds[settings.by_cpu_time] for seconds in times])}
