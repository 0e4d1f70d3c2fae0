"""How far what was trained here is from what comes in the box: its weights, and what its training measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from . import SHIPPED, shipped

TIMES = ("runtime", "per_second")


def against_shipped_adapter(trained: Path, method: str, representation: str) -> list[str]:
    """Return lines that compare a trained adapter with the shipped one of its recipe's name, method and representation.

    Held-out figures are the last of the trainings' logs; they are left out where they are of other questions. One line
    says so if no such adapter is shipped.
    """
    name = _json(trained / "adapters.json")["name"]
    folders = [SHIPPED / model / f"{method}-{representation}" for model in shipped()]
    theirs = [folder for folder in folders if (folder / "adapters.json").is_file()]
    lines: list[str] = []
    for folder in theirs:
        if _json(folder / "adapters.json")["name"] == name:
            lines += [
                f"against the shipped {folder.parent.name}/{folder.name}:",
                *_adapter_lines(trained, folder),
            ]
    return lines or [f"no {method} adapter for {representation} of recipe {name} is shipped to compare with"]


def against_shipped_base(trained: Path) -> list[str]:
    """Return lines that compare a base with those shipped: trainings, weights, and the mean of each gate.

    Whatever the recipe: a shipped base comes of several, one after the other, and each of them is on the way there.
    """
    lines = []
    for folder in (SHIPPED / model / "base" for model in shipped()):
        if (folder / "gates.json").is_file():
            lines += [
                f"against the shipped {folder.parent.name}/{folder.name}:",
                f"  trained  shipped {_trained(folder)}, here {_trained(trained)}",
                f"  weights  {_apart(_weights(trained), _weights(folder))}",
                *_figures(_gates(trained), _gates(folder)),
            ]
    return lines


def _adapter_lines(trained: Path, shipped_folder: Path) -> Iterator[str]:
    folders = (trained, shipped_folder)
    ours, theirs = (_json(folder / "adapters.json") for folder in folders)
    differing = sorted(name for name in theirs.keys() | ours.keys() if ours.get(name) != theirs.get(name))
    yield f"  recipe   {'the same' if not differing else 'another: ' + ', '.join(differing)}"
    bases = [_json(folder / "adapter_config.json")["base"]["weights_hash"] for folder in folders]
    if all(bases) and bases[0] != bases[1]:
        yield "  base     another, so weights and figures cannot be compared"
        return
    yield f"  weights  {_apart(*map(_weights, folders))}"
    if _held_out_questions(ours) == _held_out_questions(theirs):
        yield from _figures(*map(_held_out, folders))
    else:
        yield "  held-out questions are others, so their figures cannot be compared"


def _figures(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Iterator[str]:
    width = max(map(len, theirs), default=0)
    for name, value in theirs.items():
        here = f"{ours[name]:.4f}, {ours[name] - value:+.4f}" if name in ours else "not measured"
        yield f"  {name:<{width}}  shipped {value:.4f}, here {here}"


def _apart(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the distance of two sets of weights over the length of the second, in words."""
    shapes = [{name: tuple(tensor.shape) for name, tensor in side.items()} for side in (ours, theirs)]
    if shapes[0] != shapes[1]:
        return "of another shape"
    distance = sum(float((ours[name] - tensor).square().sum()) for name, tensor in theirs.items()) ** 0.5
    length = sum(float(tensor.square().sum()) for tensor in theirs.values()) ** 0.5
    return "the same" if distance == 0 else f"{distance / length:.2%} of their length apart"


def _weights(folder: Path) -> Mapping[str, Any]:
    """Return the tensors of an adapter or a base, as float64."""
    from safetensors.torch import load_file

    paths = sorted(folder.glob("*.safetensors"))
    return {name: tensor.double() for path in paths for name, tensor in load_file(path).items()}


def _held_out_questions(recipe: Mapping[str, Any]) -> list[Any]:
    world = recipe["stages"][-1].get("world", recipe["seed"])
    last = world[-1] if isinstance(world, list) else world
    return [last, *(recipe[name] for name in ("scale", "subtasks", "held_out"))]


def _held_out(folder: Path) -> dict[str, float]:
    measured = [entry for entry in _json(folder / "log.json") if "eval_lm_loss" in entry]
    return {
        f"held-out {name.removeprefix('eval_').replace('_', ' ')}": value
        for name, value in (measured[-1] if measured else {}).items()
        # A loss of zero is one that the method does not have.
        if name.startswith("eval_") and not name.endswith(TIMES) and value
    }


def _gates(folder: Path) -> dict[str, float]:
    cells = defaultdict(list)
    for cell in _json(folder / "gates.json"):
        cells[f"{cell['gate'].replace('_', ' ')}, {cell['representation'].upper()}"].append(cell["success"])
    return {f"gate {name}": mean(values) for name, values in cells.items()}


def _trained(folder: Path) -> str:
    said = _json(folder / "training.json")
    recipes = [*(said["earlier"] or {}).get("recipes", []), said["recipe"]["name"]]
    return f"{said['tokens'] / 1e6:.1f} M tokens ({', '.join(recipes)})"


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
