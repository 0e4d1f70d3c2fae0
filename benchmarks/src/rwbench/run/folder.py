"""Folders of runs: which spec a folder belongs to, how far it is, and which runs a recipe made."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json
from ruleworld_data.io import write_whole

from ..score.results import Results, read_results, run_samples
from ..score.samples import samples_sha256
from ..spec import RunSpec, in_words, spec_differences
from .data import select
from .workspace import Workspace

SPEC_FILE = "spec.json"
MANIFEST_SUFFIX = ".recipe.json"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process alone; a ValueError if another process holds it."""
    with (folder / ".lock").open("a") as file:  # never truncated: it may be a link
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another process is running {folder}; wait for it or stop it") from None
        yield


@dataclass(frozen=True)
class Plan:
    """What running a spec would do."""

    spec: RunSpec
    folder: Path
    scheduled: int
    done: int
    results: Results | None
    """None while it is not finished."""

    @property
    def left(self) -> int:
        """Questions still to be asked."""
        return self.scheduled - self.done

    @property
    def state(self) -> str:
        """``"new"``, ``"resume"`` or ``"finished"``."""
        return "finished" if self.results is not None else "resume" if self.done else "new"


def make_plan(spec: RunSpec, workspace: Workspace, out: Path) -> Plan:
    """Look at a run's folder without changing it; a ValueError if it belongs to another spec."""
    folder = out / spec.run_id
    _check_spec(folder, spec)
    ids = {
        question.id
        for name in spec.subtasks
        for question in select(workspace.questions(name, spec.split), spec.limit)
    }
    samples = run_samples(folder) or []
    done = ids & {sample["id"] for sample in samples if sample["error"] is None}
    results = read_results(folder)
    if results is not None and not len(done) == len(ids) == results["n"]["scored"]:
        results = None
    # What is kept of a packed run has another hash.
    if results is not None and folder.is_dir() and results["samples_sha256"] != samples_sha256(samples):
        results = None
    return Plan(spec, folder, len(ids), len(done), results)


def _check_spec(folder: Path, spec: RunSpec) -> None:
    path = folder / SPEC_FILE
    if not path.is_file():
        return
    try:
        differences = spec_differences(dict(from_json(path.read_bytes())), spec.to_dict())
    except (ValueError, TypeError):
        raise ValueError(
            f"{path} is no spec; it is never edited by hand: delete the folder {folder}"
        ) from None
    for field, (theirs, ours) in differences.items():
        raise ValueError(
            f"{folder} holds a run of another spec: {field} is {theirs!r} there and {ours!r} here; "
            f"move that folder away, or choose another --out (this run is {spec.run_id})"
        )


class Manifest(BaseModel):
    """A recipe that was run, as one small file beside its run folders, so that a later report knows."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    recipe: str
    command: str
    skipped: list[str]
    """What did not run, and why."""
    runs: list[str]
    """Ids of its runs, in the recipe's order."""

    def write(self, folder: Path) -> None:
        """Write the manifest beside the run folders."""
        body = json.dumps(self.model_dump(), indent=1, ensure_ascii=False) + "\n"
        write_whole(folder / f"{file_stem(self.recipe)}{MANIFEST_SUFFIX}", body)

    def select(self, results: Sequence[Results]) -> list[Results]:
        """Return the results of the recipe's runs, in its order."""
        by_id = {run["run_id"]: run for run in results}
        return [by_id[name] for name in self.runs if name in by_id]


def read_manifests(folder: Path) -> list[Manifest]:
    """Return the manifests in and below a folder, table 2 before table 10; a ValueError if a file is not a manifest."""
    manifests = []
    paths = folder.rglob(f"*{MANIFEST_SUFFIX}")
    for path in sorted(paths, key=lambda path: (natural_order(path.name), path)):
        try:
            manifests.append(Manifest.model_validate_json(path.read_bytes()))
        except ValueError as error:
            raise ValueError(
                f"{path} is not a recipe's list of runs ({in_words(error)}); delete it, `rwbench run` writes it anew"
            ) from None
    return manifests


def natural_order(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts table10 behind table2."""
    return [(words, int(number or 0)) for words, number in re.findall(r"(\D*)(\d*)", name)]


def file_stem(recipe: str) -> str:
    """Return a recipe's name as part of a file name."""
    return recipe.replace("/", "-")
