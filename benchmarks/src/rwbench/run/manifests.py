"""Which runs a recipe made: one small file per recipe beside the run folders, so that a later report knows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..score.results import Results
from .samples import write_whole

SUFFIX = ".recipe.json"


class Manifest(NamedTuple):
    """A recipe that was run: its name, the command, what did not run and why, and the ids of its runs."""

    recipe: str
    command: str
    skipped: list[str]
    runs: list[str]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest beside the run folders."""
    body = json.dumps(manifest._asdict(), indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / f"{file_stem(manifest.recipe)}{SUFFIX}", body.encode())


def read_manifests(folder: Path) -> list[Manifest]:
    """Return the manifests in and below a folder, table 2 before table 10; a recipe run in several folders is one.

    Raises
    ------
    ValueError
        If a file is not a manifest.
    """
    found: dict[str, Manifest] = {}
    for path in sorted(folder.rglob(f"*{SUFFIX}"), key=_order):
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            new = Manifest(**values)
        except (ValueError, TypeError):
            raise ValueError(
                f"{path} is not a recipe's list of runs; delete it, `rwbench run` writes it anew"
            ) from None
        found[new.recipe] = _merged(found[new.recipe], new) if new.recipe in found else new
    return list(found.values())


def _order(path: Path) -> tuple[list[tuple[str, int]], Path]:
    parts = re.findall(r"(\D*)(\d*)", path.name)
    return [(words, int(number or 0)) for words, number in parts], path


def _merged(one: Manifest, other: Manifest) -> Manifest:
    commands, skipped, runs = (
        list(dict.fromkeys([*here, *there]))
        for here, there in (
            ([one.command], [other.command]),
            (one.skipped, other.skipped),
            (one.runs, other.runs),
        )
    )
    return Manifest(one.recipe, "; ".join(commands), skipped, runs)


def runs_of(manifest: Manifest, results: Sequence[Results]) -> list[Results]:
    """Return the results of a recipe's runs, in its order."""
    by_id = {run["run_id"]: run for run in results}
    return [by_id[name] for name in manifest.runs if name in by_id]


def file_stem(recipe: str) -> str:
    """Return a recipe's name as part of a file name."""
    return recipe.replace("/", "-")
