"""Results files: a benchmark's settings, the environment and what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..run.environment import environment

SCHEMA_VERSION = 1
Table = dict[str, Any]


def open_table(path: Path, kind: str, settings: dict[str, Any]) -> Table:
    """Return the results file's content, or an empty table if there is none.

    Raises
    ------
    ValueError
        If the file is not one of ours, or was measured with other settings.
    """
    head = {"schema_version": SCHEMA_VERSION, "kind": kind, "settings": settings}
    if not path.exists():
        return head | {"environment": None, "cells": []}
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


def save(out: Path, kind: str, settings: dict[str, Any], found: Table) -> Table:
    """Write what was measured in one go as a results file, ``KIND.json``, and return its content."""
    head = {"schema_version": SCHEMA_VERSION, "kind": kind, "settings": settings}
    table = head | {"environment": environment()} | found
    write_table(out / f"{kind}.json", table)
    return table
