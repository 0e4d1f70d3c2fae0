"""One cell: time to first token, time per token, selection and memory of a method, in pairs with the base model.

Base and method take turns: a prefill of one, a prefill of the other (first one first, then the other way round), then
token by token in turns. So whatever else the machine does falls on both, and ratios are of neighbours in time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .machine import peak_mb, random_tokens, ratios, reset_peak, spread
from .plan import TORCH_NAMES, Cell, Settings
from .shapes import random_model, shape_of

if TYPE_CHECKING:
    from .conditions import Condition


def run_cell(settings: Settings, cell: Cell, cache: Path) -> dict[str, Any]:
    """Measure a cell in this process; its peak memory is right only in a process of its own.

    Parameters
    ----------
    settings : Settings
    cell : Cell
    cache : Path
        Folder of random embeddings.

    Returns
    -------
    dict
        The cell's figures, in ms and MB; see ``schema/efficiency.schema.json``.
    """
    import torch

    from .conditions import Condition, build

    torch.set_num_threads(settings.threads)
    shape, device = shape_of(settings.shape), settings.device
    model = random_model(shape, device, getattr(torch, TORCH_NAMES[settings.dtype]), settings.seed)
    search_token = shape.vocab - 1
    tokens = random_tokens(settings.prompt_tokens + settings.new_tokens, search_token, settings.seed, device)
    base = Condition(model, tokens[:, : settings.prompt_tokens])
    new = tokens[:, settings.prompt_tokens :].split(1, 1)
    reset_peak(device)
    base.prefill(device)
    base.step(new[0], device)
    base_peak = peak_mb(device)
    started = time.perf_counter()
    method = build(settings, cell, model, base.prompt, search_token, cache)
    if cell.method != "prompting":  # the same code as the base model's, and long
        method.prefill(device)
        method.step(new[0], device)
    prepared = time.perf_counter() - started
    reset_peak(device)
    number, started = 0, time.perf_counter()
    while number < settings.repeats and (not number or time.perf_counter() - started < settings.cell_seconds):
        order = [base, method] if number % 2 == 0 else [method, base]
        for each in order:
            each.ttft.append(each.prefill(device))
        for token in new:
            for each in order:
                each.decode.append(each.step(token, device))
        if method.searches:
            for each in order:
                each.search.append(each.step(torch.full_like(new[0], search_token), device))
        number += 1
    peak = peak_mb(device)
    return _figures(settings, cell, base, method) | {
        "peak_mb": round(peak, 1),
        "base_peak_mb": round(base_peak, 1),
        "prepare_s": round(prepared, 2),
        **method.figures(),
    }


def _figures(settings: Settings, cell: Cell, base: Condition, method: Condition) -> dict[str, Any]:
    out: dict[str, Any] = {
        "method": cell.method,
        "rules": cell.rules,
        "status": "ok",
        "prompt_tokens": method.prompt.shape[1],
        "repeats": len(method.ttft),
    }
    column = settings.clock == "cpu"
    for name in ("ttft", "decode", "search"):
        ours, theirs = ([pair[column] for pair in getattr(each, name)] for each in (method, base))
        if not ours:
            continue
        out[f"{name}_ms"] = spread([1e3 * second for second in ours])
        out[f"base_{name}_ms"] = spread([1e3 * second for second in theirs])
        out[f"{name}_ratio"] = spread(ratios(ours, theirs))
        walls = [[pair[0] for pair in getattr(each, name)] for each in (method, base)]
        out[f"{name}_wall_ratio"] = spread(ratios(*walls))
    return out
