"""A table's cells one after another, each in a process of its own; the results file is what a resumed run reads."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.io import start_worker, write_whole

from ..run.environment import environment
from ..run.folder import exclusive
from .plan import DTYPES, Cell, Settings
from .shapes import shape_of

if TYPE_CHECKING:
    from ruleworld_data.io import Progress

SCHEMA_VERSION = 1
Table = dict[str, Any]


def open_table(path: Path, kind: str, settings: dict[str, Any]) -> Table:
    """Return the results file's content, or an empty table if there is none.

    Raises
    ------
    ValueError
        If the file is not one of ours, or was measured with other settings.
    """
    if not path.exists():
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "settings": settings,
            "environment": None,
            "cells": [],
        }
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        version, found = table["schema_version"], table["settings"]
        table["cells"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a results file; delete it or choose another --out") from None
    if (version, table.get("kind")) != (SCHEMA_VERSION, kind):
        raise ValueError(
            f"{path} has schema version {version!r} and kind {table.get('kind')!r}, this command writes "
            f"{SCHEMA_VERSION} and {kind!r}; choose another --out"
        )
    other = [f"{name} {found.get(name)!r}" for name in settings if found.get(name) != settings[name]]
    if other:
        raise ValueError(
            f"{path} was measured with {', '.join(other)}; give the same options to go on, or another --out"
        )
    return table


def write_table(path: Path, table: Table) -> None:
    """Replace the results file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(table, indent=1, allow_nan=False) + "\n").encode())


def save(out: Path, kind: str, settings: dict[str, Any], found: dict[str, Any]) -> Table:
    """Write figures measured in one go as a results file, ``KIND.json``, and return its content."""
    head = {"schema_version": SCHEMA_VERSION, "kind": kind, "settings": settings}
    table = head | {"environment": environment()} | found
    write_table(out / f"{kind}.json", table)
    return table


def measure(
    settings: Settings, cells: Sequence[Cell], out: Path, cache: Path, progress: Progress, apart: bool = True
) -> Table:
    """Measure what is not measured yet and return the whole table.

    Parameters
    ----------
    settings : Settings
    cells : sequence of Cell
    out : Path
        Folder; ``serving.json`` in it is written after every cell.
    cache : Path
        Folder of random embeddings.
    progress : Progress
    apart : bool
        A process per cell; without it, peak memory contains what other cells left.
    """
    path = out / "serving.json"
    table = open_table(path, "serving", settings.to_dict())
    done = {(cell["method"], cell["rules"]) for cell in table["cells"] if cell["status"] != "failed"}
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        table["environment"] = environment()
        if "bandwidth_gb_s" not in table:
            table["bandwidth_gb_s"] = round(_run(_bandwidth, apart, settings.threads, settings), 2)
        for cell in cells:
            if (cell.method, cell.rules) in done:
                progress.step()
                continue
            progress.note(f"{cell.method}, {cell.rules:,} rules")
            found = _measured(settings, cell, cache, apart)
            found |= floors(settings, found, table["bandwidth_gb_s"])
            others = [c for c in table["cells"] if (c["method"], c["rules"]) != (cell.method, cell.rules)]
            table["cells"] = [*others, found]
            write_table(path, table)
            progress.step(failed=found["status"] == "failed")
    return table


def _measured(settings: Settings, cell: Cell, cache: Path, apart: bool) -> dict[str, Any]:
    """Return a cell's figures, or why there are none."""
    from .serving import run_cell

    which = {"method": cell.method, "rules": cell.rules}
    obstacle = cell.obstacle(settings)
    if obstacle:
        return which | {"status": "not_run", "note": obstacle}
    try:
        return _run(run_cell, apart, settings.threads, settings, cell, cache)
    except BrokenProcessPool:
        return which | {"status": "failed", "note": "the process was killed, most likely for memory"}
    except (RuntimeError, MemoryError, OSError) as error:
        return which | {"status": "failed", "note": f"{type(error).__name__}: {error}".splitlines()[0]}


def floors(settings: Settings, cell: dict[str, Any], bandwidth: float) -> dict[str, Any]:
    """Return the ms in which memory can be read that must be read: all embeddings per layer, all weights per token."""
    if cell["status"] != "ok":
        return {}
    shape = shape_of(settings.shape)
    layer = shape.hidden * (2 * shape.hidden + 3 * shape.ffn)
    layer += 2 * shape.hidden * shape.kv_heads * (shape.hidden // shape.heads)
    weights = DTYPES[settings.dtype] * (shape.layers * layer + shape.vocab * shape.hidden)
    out = {"base_decode_floor_ms": round(weights / bandwidth / 1e6, 3)}
    if cell.get("index") == "exact" and cell["rules"]:
        read = shape.layers * cell["rules"] * settings.encoder_dim * DTYPES[settings.embeddings]
        out["select_floor_ms"] = round(read / bandwidth / 1e6, 3)
    return out


def _bandwidth(settings: Settings) -> float:
    import torch

    from .machine import read_bandwidth

    torch.set_num_threads(settings.threads)
    return read_bandwidth(settings.device, settings.clock, 8 if settings.shape == "tiny" else 1_024)


def _run(work: Any, apart: bool, threads: int, *args: Any) -> Any:
    if not apart:
        return work(*args)
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(threads,)) as pool:
        return pool.submit(work, *args).result()


def _start(threads: int) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    start_worker(threads)
