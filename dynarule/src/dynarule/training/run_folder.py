"""The folder of a training run: which run it belongs to, and from where that goes on."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import refuse_link, write_whole

RECIPE = "recipe.json"
STATE = "trainer_state.json"  # the Trainer writes it last


def claim(folder: Path, settings: Mapping[str, Any], resume: bool, write: bool = True) -> str | None:
    """Take a folder, held by `dynarule._files.exclusive`, for a run; return the checkpoint to go on from, or None.

    ``settings`` make a run the same one: written to ``recipe.json``, and compared on resuming (ValueError). A new run
    never shares a folder with older checkpoints, which a later resume could take for its own (FileExistsError). Of
    several processes one may ``write``.
    """
    for path in folder.glob("checkpoint-*"):
        refuse_link(path)
    checkpoints, whole = _checkpoints(folder), whole_checkpoints(folder)
    if checkpoints and not resume:
        raise FileExistsError(
            f"{folder} holds checkpoints of an earlier run, the newest {checkpoints[0].name}; resume it (--resume), or "
            "choose a new folder"
        )
    path = folder / RECIPE
    settings = json.loads(json.dumps(settings))  # as the file has them: lists for tuples
    if whole and path.is_file():
        try:
            started = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it to resume without the check") from None
        refuse_changes(folder, started, settings)
    elif write and not whole:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(settings, indent=1) + "\n")
    if write:
        for checkpoint in {*checkpoints} - {*whole}:
            shutil.rmtree(checkpoint)  # the Trainer would count it among those it keeps
    return str(whole[0]) if whole else None


def refuse_changes(folder: Path, started: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise ValueError if a folder's run was started with other settings."""
    for name, value in settings.items():
        if started.get(name) != value:
            raise ValueError(
                f"{folder} was started with {name} {started.get(name)!r}, now it is {value!r}; resume with the recipe "
                "of the start, or train in a new folder"
            )


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder that were saved to their end, newest first."""
    return [checkpoint for checkpoint in _checkpoints(folder) if _is_whole(checkpoint)]


def _checkpoints(folder: Path) -> list[Path]:
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    paths = [path for path, step in steps.items() if path.is_dir() and step.isdecimal()]
    return sorted(paths, key=lambda path: int(steps[path]), reverse=True)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
