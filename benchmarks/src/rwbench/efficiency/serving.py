"""Serving cost by number of rules: time to first token, time per token and per search, memory.

Base model and method take turns: a prefill of one, a prefill of the other, then token by token, so whatever else the
machine does falls on both, and ratios are of neighbours in time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.io import start_worker, write_whole

from ..run.environment import environment
from .settings import DTYPES, Cell, Settings
from .workload import peak_mb, random_model, random_tokens, reset_peak, spread

if TYPE_CHECKING:
    from .methods import Condition

Table = dict[str, Any]
Figures = dict[str, Any]


def in_own_process(settings: Settings, cell: Cell, cache: Path) -> Figures:
    """Measure a cell in a new process, whose peak of memory is the cell's."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=start_worker, initargs=(settings.threads,)
    ) as pool:
        return pool.submit(measure_cell, settings, cell, cache).result()


def measure(
    settings: Settings,
    cells: Sequence[Cell],
    path: Path,
    cache: Path,
    note: Callable[[str], None] = lambda line: None,
    run: Callable[[Settings, Cell, Path], Figures] = in_own_process,
) -> Table:
    """Measure what is not measured yet and return the whole table.

    The results file ``path`` is written after every cell, and a later call takes up from it. ``cache`` is the folder of
    random embeddings.

    Raises
    ------
    ValueError
        If the file was measured with other settings.
    """
    table = _open(path, settings)
    done = {(cell["method"], cell["rules"]): cell for cell in table["cells"] if cell["status"] != "failed"}
    path.parent.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        name = cell.method, cell.rules
        if name not in done:
            note(f"{cell.method}, {cell.rules:,} rules")
            done[name] = {"method": cell.method, "rules": cell.rules} | _outcome(settings, cell, cache, run)
            table["cells"] = list(done.values())
            write_whole(path, json.dumps(table, indent=1, allow_nan=False) + "\n")
    return table


def _open(path: Path, settings: Settings) -> Table:
    new = {"schema_version": 1, "kind": "serving", "settings": asdict(settings), "environment": environment()}
    if not path.exists():
        return new | {"cells": []}
    table = json.loads(path.read_text(encoding="utf-8"))
    if table["settings"] != asdict(settings):
        raise ValueError(
            f"{path} was measured with {table['settings']}; give the same options to go on, or another --out"
        )
    return new | {"cells": table["cells"]}


def _outcome(
    settings: Settings, cell: Cell, cache: Path, run: Callable[[Settings, Cell, Path], Figures]
) -> Figures:
    """Return a cell's figures, or why there are none."""
    if obstacle := cell.obstacle(settings):
        return {"status": "not_run", "note": obstacle}
    try:
        return {"status": "ok"} | run(settings, cell, cache)
    except BrokenProcessPool:
        note = "the process was killed, most likely for memory"
    except (RuntimeError, MemoryError, OSError) as error:
        note = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"status": "failed", "note": note}


def measure_cell(settings: Settings, cell: Cell, cache: Path) -> Figures:
    """Measure a cell in this process and return its figures, in ms and MB."""
    import torch

    from .methods import Condition, build

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
        for token in new:
            for condition in order:
                condition.times["decode"].append(condition.step(token, device))
        if method.searches:
            search = torch.full_like(new[0], shape.search_token)
            for condition in order:
                condition.times["search"].append(condition.step(search, device))
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
