"""How far what was trained here is from what is shipped: its weights, and what its training measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from . import SHIPPED, shipped

NOT_RESULTS = ("runtime", "per_second")


def compare_adapter(trained: Path, method: str, representation: str) -> list[str]:
    """Return lines that compare a trained adapter with the shipped one of its recipe's name, method and representation.

    Held-out figures are the last of the trainings' logs; they are left out where they are of other questions. One line
    says so if no such adapter is shipped.
    """
    recipe = _json(trained / "adapters.json")
    lines: list[str] = []
    for folder in (SHIPPED / model / f"{method}-{representation}" for model in shipped()):
        if (folder / "adapters.json").is_file():
            theirs = _json(folder / "adapters.json")
            if theirs["name"] == recipe["name"]:
                lines += _adapter_lines(trained, recipe, folder, theirs)
    none = f"no {method} adapter for {representation} of recipe {recipe['name']} is shipped to compare with"
    return lines or [none]


def compare_base(trained: Path) -> list[str]:
    """Return lines that compare a base with those shipped: trainings, weights, and the mean of each gate.

    Whatever the recipe: a shipped base comes of several, one after the other, and each of them is on the way there.
    """
    lines = []
    for folder in (SHIPPED / model / "base" for model in shipped()):
        if (folder / "gates.json").is_file():
            lines += [
                f"against the shipped {folder.parent.name}/{folder.name}:",
                f"  trained  shipped {_trainings(folder)}, here {_trainings(trained)}",
                f"  weights  {_distance(trained, folder)}",
                *_figures(_gates(trained), _gates(folder)),
            ]
    return lines


def _adapter_lines(
    trained: Path, recipe: Mapping[str, Any], folder: Path, theirs: Mapping[str, Any]
) -> Iterator[str]:
    yield f"against the shipped {folder.parent.name}/{folder.name}:"
    differing = sorted(name for name in theirs.keys() | recipe.keys() if recipe.get(name) != theirs.get(name))
    yield f"  recipe   {'another: ' + ', '.join(differing) if differing else 'the same'}"
    bases = [_json(each / "adapter_config.json")["base"]["weights_hash"] for each in (trained, folder)]
    if all(bases) and bases[0] != bases[1]:
        yield "  base     another, so weights and figures cannot be compared"
        return
    yield f"  weights  {_distance(trained, folder)}"
    if _held_out_questions(recipe) == _held_out_questions(theirs):
        yield from _figures(_held_out(trained), _held_out(folder))
    else:
        yield "  held-out questions are others, so their figures cannot be compared"


def _figures(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Iterator[str]:
    width = max(map(len, theirs), default=0)
    for name, value in theirs.items():
        here = f"{ours[name]:.4f}, {ours[name] - value:+.4f}" if name in ours else "not measured"
        yield f"  {name:<{width}}  shipped {value:.4f}, here {here}"


def _distance(trained: Path, folder: Path) -> str:
    """Return the distance of two sets of weights over the norm of the second, in words."""
    from safetensors.torch import load_file

    ours, theirs = (
        {k: v.double() for path in each.glob("*.safetensors") for k, v in load_file(path).items()}
        for each in (trained, folder)
    )
    if {k: v.shape for k, v in ours.items()} != {k: v.shape for k, v in theirs.items()}:
        return "of another shape"
    distance = sum(float((ours[k] - v).square().sum()) for k, v in theirs.items()) ** 0.5
    norm = sum(float(v.square().sum()) for v in theirs.values()) ** 0.5
    return f"{distance / norm:.2%} of their length apart" if distance else "the same"


def _held_out_questions(recipe: Mapping[str, Any]) -> list[Any]:
    world = recipe["stages"][-1].get("world", recipe["seed"])
    last = world[-1] if isinstance(world, list) else world
    return [last, *(recipe[name] for name in ("scale", "subtasks", "held_out"))]


def _held_out(folder: Path) -> dict[str, float]:
    """Return what the last evaluation of a log measured; a loss of zero is one that the method does not have."""
    measured = [entry for entry in _json(folder / "log.json") if "eval_lm_loss" in entry] or [{}]
    return {
        f"held-out {name.removeprefix('eval_').replace('_', ' ')}": value
        for name, value in measured[-1].items()
        if name.startswith("eval_") and not name.endswith(NOT_RESULTS) and value
    }


def _gates(folder: Path) -> dict[str, float]:
    cells = defaultdict(list)
    for cell in _json(folder / "gates.json"):
        cells[f"gate {cell['gate'].replace('_', ' ')}, {cell['representation'].upper()}"].append(
            cell["success"]
        )
    return {name: mean(values) for name, values in cells.items()}


def _trainings(folder: Path) -> str:
    summary = _json(folder / "training.json")
    recipes = [*(summary["earlier"] or {}).get("recipes", []), summary["recipe"]["name"]]
    return f"{summary['tokens'] / 1e6:.1f} M tokens ({', '.join(recipes)})"


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
