"""How far what was trained here is from what comes in the box: its weights, and what its training measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from . import SHIPPED, shipped

TIMES = ("runtime", "per_second")


def against_shipped_adapter(trained: Path, method: str, representation: str) -> list[str]:
    """Return lines that compare a trained adapter with the shipped one of the same recipe, method and representation.

    Held-out figures are the last of the trainings' logs. One line says so if none is shipped of that recipe.
    """
    recipe = json.loads((trained / "adapters.json").read_text(encoding="utf-8"))["name"]
    folders = [SHIPPED / name / f"{method}-{representation}" for name in shipped()]
    theirs = [folder for folder in folders if _recipe_name(folder / "adapters.json") == recipe]
    if not theirs:
        return [f"no {method} adapter for {representation} of recipe {recipe} is shipped to compare with"]
    return _lines(trained, theirs, _held_out)


def against_shipped_base(trained: Path) -> list[str]:
    """Return lines that compare a base with those shipped: weights, and the mean of each gate.

    Whatever the recipe: a shipped base comes of several, one after the other, and each of them is on the way there.
    """
    theirs = [SHIPPED / name / "base" for name in shipped()]
    return _lines(trained, [folder for folder in theirs if (folder / "gates.json").is_file()], _gates)


def _recipe_name(path: Path) -> str | None:
    return json.loads(path.read_text(encoding="utf-8"))["name"] if path.is_file() else None


def _lines(trained: Path, theirs: Sequence[Path], measured: Callable[[Path], dict[str, float]]) -> list[str]:
    ours = measured(trained)
    lines = []
    for folder in theirs:
        lines.append(f"against the shipped {folder.parent.name}/{folder.name}:")
        lines.append(f"  weights  {_apart(trained, folder)}")
        shipped_figures = measured(folder)
        width = max(map(len, shipped_figures), default=0)
        for name, value in shipped_figures.items():
            here = f"{ours[name]:.4f}, {ours[name] - value:+.4f}" if name in ours else "not measured"
            lines.append(f"  {name:<{width}}  shipped {value:.4f}, here {here}")
    return lines


def _apart(ours: Path, theirs: Path) -> str:
    """Return the distance of two sets of weights over the length of the second, in words."""
    here, there = _weights(ours), _weights(theirs)
    shapes = [{name: tuple(tensor.shape) for name, tensor in side.items()} for side in (here, there)]
    if shapes[0] != shapes[1]:
        return "of another shape"
    squares = [
        (float((here[name] - tensor).square().sum()), float(tensor.square().sum()))
        for name, tensor in there.items()
    ]
    distance, length = (sum(column) ** 0.5 for column in zip(*squares, strict=True))
    return "the same" if distance == 0 else f"{distance / length:.2%} of their length apart"


def _weights(folder: Path) -> Mapping[str, Any]:
    """Return the tensors that a folder's index or only safetensors file holds, as float64."""
    from safetensors.torch import load_file

    info = folder / "adapter.json"
    names = [json.loads(info.read_text(encoding="utf-8"))["weights"]] if info.is_file() else None
    paths = [folder / name for name in names] if names else sorted(folder.glob("*.safetensors"))
    return {name: tensor.double() for path in paths for name, tensor in load_file(path).items()}


def _held_out(folder: Path) -> dict[str, float]:
    entries = json.loads((folder / "log.json").read_text(encoding="utf-8"))
    last = next((entry for entry in reversed(entries) if "eval_lm_loss" in entry), {})
    return {
        f"held-out {name.removeprefix('eval_').replace('_', ' ')}": value
        for name, value in last.items()
        if name.startswith("eval_") and not name.endswith(TIMES)
    }


def _gates(folder: Path) -> dict[str, float]:
    cells = defaultdict(list)
    for cell in json.loads((folder / "gates.json").read_text(encoding="utf-8")):
        cells[f"{cell['gate'].replace('_', ' ')}, {cell['representation'].upper()}"].append(cell["success"])
    return {f"gate {name}": mean(values) for name, values in cells.items()}
