"""The folder of a training run: whose it is, where to go on, and files written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recipe import Recipe

RECIPE = "recipe.json"
STATE = "trainer_state.json"  # the Trainer writes it last


def claim(
    folder: Path,
    recipe: Recipe,
    resume: bool,
    write: bool = True,
    more: Mapping[str, Any] | None = None,
) -> str | None:
    """Take a folder for a run, and return the checkpoint to go on from; None at the start.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    recipe : Recipe
        Written to ``recipe.json``, so that a resumed run is known to be the same one.
    resume : bool
        Go on from the newest checkpoint that is whole: a kill may come while one is saved.
    write : bool
        Whether this process writes; one of several does.
    more : mapping, optional
        What else must be as it was at the start, by name.

    Raises
    ------
    FileExistsError
        If a new run would share the folder with checkpoints of another, which a later resume could take for its own.
    FileNotFoundError
        If there is nothing whole to resume.
    ValueError
        If the checkpoints are of another recipe.
    """
    checkpoints = _checkpoints(folder)
    newest = next((path for path in checkpoints if _whole(path)), None)
    wanted = json.loads(json.dumps(recipe.to_dict() | dict(more or {})))
    if not resume:
        if newest is not None:
            raise FileExistsError(
                f"{folder} holds checkpoints of an earlier run, the newest {newest.name}; resume it (--resume), "
                "or choose a new folder"
            )
        if checkpoints:
            raise FileExistsError(
                f"{folder} holds {checkpoints[0].name} of an earlier run, killed while it was saved; delete "
                f"{checkpoints[0].name}, or choose a new folder"
            )
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / RECIPE, json.dumps(wanted, indent=1) + "\n")
        return None
    if newest is None:
        cut = f"{checkpoints[0].name} was killed while it was saved; delete it and " if checkpoints else ""
        raise FileNotFoundError(f"no checkpoint to resume from in {folder}; {cut}train without resume first")
    started = _started(folder / RECIPE)
    # A run of an older version wrote down the recipe alone.
    known = {*recipe.to_dict(), *(started or {})}
    changed = [
        name for name in wanted if started is not None and name in known and started.get(name) != wanted[name]
    ]
    if changed and started is not None:
        name = changed[0]
        raise ValueError(
            f"{folder} was started with {name} {started.get(name)!r}, now it is {wanted[name]!r}; resume with the "
            "recipe of the start, or train in a new folder"
        )
    return str(newest)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, newest first."""
    numbered = {
        int(path.name.removeprefix("checkpoint-")): path
        for path in folder.glob("checkpoint-*")
        if path.is_dir() and path.name.removeprefix("checkpoint-").isdecimal()
    }
    return [numbered[step] for step in sorted(numbered, reverse=True)]


def _whole(checkpoint: Path) -> bool:
    """Say whether a checkpoint was saved to its end."""
    try:
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _started(path: Path) -> dict[str, Any] | None:
    """Return the recipe a run was started with, None if nobody wrote it down."""
    if not path.is_file():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to resume without the check") from None


def write_whole(path: Path, text: str) -> None:
    """Write a text file at once or not at all."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
