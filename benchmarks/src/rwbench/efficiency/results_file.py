"""Results files: a benchmark's settings, the environment and what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..run.environment import environment
from .settings import Settings

SCHEMA_VERSION = 1
Table = dict[str, Any]


def new_table(kind: str, settings: Settings, found: Table) -> Table:
    """Return what was measured with its head."""
    head = {"schema_version": SCHEMA_VERSION, "kind": kind, "settings": asdict(settings)}
    return head | {"environment": environment()} | found


def open_table(path: Path, kind: str, settings: Settings) -> Table:
    """Return the results file's content, or a table without cells if there is none.

    Raises
    ------
    ValueError
        If the file is not one of ours, or was measured with other settings.
    """
    new = new_table(kind, settings, {"cells": []})
    if not path.exists():
        return new
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        head = table["schema_version"], table["kind"]
        # A setting that came later had its default.
        found, _ = asdict(type(settings)()) | dict(table["settings"]), list(table["cells"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a results file; delete it or choose another --out") from None
    if head != (SCHEMA_VERSION, kind):
        raise ValueError(
            f"{path} has schema version {head[0]!r} and kind {head[1]!r}, this command writes {SCHEMA_VERSION} and "
            f"{kind!r}; choose another --out"
        )
    other = [
        f"{name} {found.get(name)!r}" for name, value in new["settings"].items() if found.get(name) != value
    ]
    if other:
        raise ValueError(
            f"{path} was measured with {', '.join(other)}; give the same options to go on, or another --out"
        )
    return table | {"environment": new["environment"]}


def write_table(path: Path, table: Table) -> None:
    """Replace the results file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(table, indent=1, allow_nan=False) + "\n")
