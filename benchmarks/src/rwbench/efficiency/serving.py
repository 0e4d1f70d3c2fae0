"""Serving cost by number of rules: time to first token, time per token, selection and memory of each method.

Base model and method take turns: a prefill of one, a prefill of the other (first one first, then the other way round),
then token by token in turns. So whatever else the machine does falls on both, and ratios are of neighbours in time.
Each cell is measured in a process of its own; the results file is written after every one, and a later run takes up
from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.io import start_worker

from ..run.folder import exclusive
from .results_file import Table, open_table, write_table
from .settings import DTYPES, TORCH_NAMES, Cell, ServingSettings
from .timing import peak_mb, ratios, read_bandwidth, reset_peak, spread
from .workload import random_model, random_tokens

if TYPE_CHECKING:
    from ruleworld_data.io import Progress

    from .conditions import Condition


def measure(
    settings: ServingSettings,
    cells: Sequence[Cell],
    out: Path,
    cache: Path,
    progress: Progress,
    apart: bool = True,
) -> Table:
    """Measure what is not measured yet and return the whole table.

    ``serving.json`` in the folder ``out`` is written after every cell; ``cache`` is the folder of random embeddings.
    Each cell has a process of its own if ``apart``; without it, peak memory contains what other cells left.
    """
    path = out / "serving.json"
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        table = open_table(path, "serving", settings)
        cells_by_name = {(cell["method"], cell["rules"]): cell for cell in table["cells"]}
        if "bandwidth_gb_s" not in table:
            megabytes = 8 if settings.shape == "tiny" else 1_024
            table["bandwidth_gb_s"] = round(_run(read_bandwidth, apart, settings, megabytes), 2)
        for cell in cells:
            name = cell.method, cell.rules
            if cells_by_name.get(name, {"status": "failed"})["status"] == "failed":
                progress.note(f"{cell.method}, {cell.rules:,} rules")
                found = _measured(settings, cell, cache, apart)
                cells_by_name.pop(name, None)
                cells_by_name[name] = found | floors(settings, found, table["bandwidth_gb_s"])
                write_table(path, table | {"cells": list(cells_by_name.values())})
            progress.step(failed=cells_by_name[name]["status"] == "failed")
    return table | {"cells": list(cells_by_name.values())}


def _measured(settings: ServingSettings, cell: Cell, cache: Path, apart: bool) -> dict[str, Any]:
    """Return a cell's figures, or why there are none."""
    which = {"method": cell.method, "rules": cell.rules}
    if obstacle := cell.obstacle(settings):
        return which | {"status": "not_run", "note": obstacle}
    try:
        return which | {"status": "ok"} | _run(run_cell, apart, settings, cell, cache)
    except BrokenProcessPool:
        note = "the process was killed, most likely for memory"
    except (RuntimeError, MemoryError, OSError) as error:
        note = f"{type(error).__name__}: {error}".splitlines()[0]
    return which | {"status": "failed", "note": note}


def run_cell(settings: ServingSettings, cell: Cell, cache: Path) -> dict[str, Any]:
    """Measure a cell in this process and return its figures, in ms and MB; peak memory is the process's."""
    import torch

    from .conditions import Condition
    from .methods import build

    torch.set_num_threads(settings.threads)
    shape, device = settings.sizes, settings.device
    model = random_model(shape, device, getattr(torch, TORCH_NAMES[settings.dtype]), settings.seed)
    count = settings.prompt_tokens + settings.new_tokens
    tokens = random_tokens(count, shape.search_token, settings.seed, device)
    base = Condition(model, tokens[:, : settings.prompt_tokens])
    new = tokens[:, settings.prompt_tokens :].split(1, 1)
    reset_peak(device)
    base.prefill(device)
    base.step(new[0], device)
    base_peak = peak_mb(device)
    started = time.perf_counter()
    method = build(settings, cell, base, cache)
    if cell.method != "prompting":  # the same code as the base model's, and long
        method.prefill(device)
        method.step(new[0], device)
    prepared = time.perf_counter() - started
    reset_peak(device)
    number, started = 0, time.perf_counter()
    while number < settings.repeats and (not number or time.perf_counter() - started < settings.cell_seconds):
        order = [base, method] if number % 2 == 0 else [method, base]
        for each in order:
            each.times["ttft"].append(each.prefill(device))
        for token in new:
            for each in order:
                each.times["decode"].append(each.step(token, device))
        if method.searches:
            for each in order:
                token = torch.full_like(new[0], shape.search_token)
                each.times["search"].append(each.step(token, device))
        number += 1
    peak = peak_mb(device)
    return {
        "prompt_tokens": method.prompt.shape[1],
        "repeats": number,
        **_figures(settings, base, method),
        "peak_mb": round(peak, 1),
        "base_peak_mb": round(base_peak, 1),
        "prepare_s": round(prepared, 2),
        **method.figures(),
    }


def _figures(settings: ServingSettings, base: Condition, method: Condition) -> dict[str, Any]:
    """Return times and ratios of what was timed, ratios by the wall clock too."""
    out: dict[str, Any] = {}
    for name, timed_pairs in method.times.items():
        pairs = timed_pairs, base.times[name]
        ours, theirs = ([pair[settings.by_cpu_time] for pair in each] for each in pairs)
        out[f"{name}_ms"] = spread([1e3 * second for second in ours])
        out[f"base_{name}_ms"] = spread([1e3 * second for second in theirs])
        out[f"{name}_ratio"] = spread(ratios(ours, theirs))
        out[f"{name}_wall_ratio"] = spread(ratios(*([pair[0] for pair in each] for each in pairs)))
    return out


def floors(settings: ServingSettings, cell: dict[str, Any], bandwidth: float) -> dict[str, Any]:
    """Return the ms in which memory can be read that must be read: all embeddings per layer, all weights per token."""
    if cell["status"] != "ok":
        return {}
    shape = settings.sizes
    layer = shape.hidden * (2 * shape.hidden + 3 * shape.ffn)
    layer += 2 * shape.hidden * shape.kv_heads * (shape.hidden // shape.heads)
    weights = DTYPES[settings.dtype] * (shape.layers * layer + shape.vocab * shape.hidden)
    out = {"base_decode_floor_ms": round(weights / bandwidth / 1e6, 3)}
    if cell.get("index") == "exact" and cell["rules"]:
        read = shape.layers * cell["rules"] * settings.encoder_dim * DTYPES[settings.embeddings]
        out["select_floor_ms"] = round(read / bandwidth / 1e6, 3)
    return out


def _run(work: Any, apart: bool, settings: ServingSettings, *args: Any) -> Any:
    if not apart:
        return work(settings, *args)
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(settings.threads,)) as pool:
        return pool.submit(work, settings, *args).result()


def _start(threads: int) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    start_worker(threads)
