"""The folder of a training run: whose it is, where to go on, and files written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import write_whole

RECIPE = "recipe.json"
STATE = "trainer_state.json"  # the Trainer writes it last


def claim(folder: Path, settings: Mapping[str, Any], resume: bool, write: bool = True) -> str | None:
    """Take a folder for a run, and return the checkpoint to go on from; None at the start.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    settings : mapping
        What makes a run the same one, as JSON values: written to ``recipe.json``, and compared on resuming.
    resume : bool
        Go on from the newest checkpoint that is whole: a kill may come while one is saved.
    write : bool
        Whether this process writes; one of several does.

    Raises
    ------
    FileExistsError
        If a new run would share the folder with checkpoints of another, which a later resume could take for its own.
    FileNotFoundError
        If there is nothing whole to resume.
    ValueError
        If the checkpoints are of other settings.
    """
    checkpoints = _checkpoints(folder)
    newest = next((path for path in checkpoints if _whole(path)), None)
    cut_off = next((path.name for path in checkpoints if newest is None), None)
    wanted = json.loads(json.dumps(settings))
    if not resume:
        if newest is not None:
            raise FileExistsError(
                f"{folder} holds checkpoints of an earlier run, the newest {newest.name}; resume it (--resume), "
                "or choose a new folder"
            )
        if cut_off:
            raise FileExistsError(
                f"{folder} holds {cut_off} of an earlier run, killed while it was saved; delete {cut_off}, or choose "
                "a new folder"
            )
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / RECIPE, json.dumps(wanted, indent=1) + "\n")
        return None
    if newest is None:
        hint = f"{cut_off} was killed while it was saved; delete it and " if cut_off else ""
        raise FileNotFoundError(f"no checkpoint to resume from in {folder}; {hint}train without resume first")
    path = folder / RECIPE
    if path.is_file():
        try:
            started = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it to resume without the check") from None
        for name in wanted:
            if started.get(name) != wanted[name]:
                raise ValueError(
                    f"{folder} was started with {name} {started.get(name)!r}, now it is {wanted[name]!r}; resume with "
                    "the recipe of the start, or train in a new folder"
                )
    return str(newest)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, newest first."""
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir() and _step(path).isdecimal()]
    return sorted(found, key=lambda path: int(_step(path)), reverse=True)


def _step(checkpoint: Path) -> str:
    return checkpoint.name.removeprefix("checkpoint-")


def _whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint was saved to its end."""
    try:
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
