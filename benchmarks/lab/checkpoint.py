"""The checkpoint of a training: one safetensors file, whole or not written, with its state as JSON in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ruleworld_data.io import write_whole
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

Optimizers = Sequence[torch.optim.Optimizer]


def write_checkpoint(
    path: Path, weights: Mapping[str, Tensor], optimizers: Optimizers, recipe: Any, state: Any
) -> None:
    """Write weights, what optimizers remember of them, and JSON values: whose training it is, and where it stands."""
    tensors = {f"weights/{name}": weight.detach() for name, weight in weights.items()}
    for i, optimizer in enumerate(optimizers):
        for number, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{i}/{number}/{name}": torch.as_tensor(value) for name, value in moments.items()}
    values = {"recipe": json.dumps(recipe), "state": json.dumps(state)}
    write_whole(path, save({name: value.cpu().contiguous() for name, value in tensors.items()}, values))


@torch.no_grad()
def read_checkpoint(path: Path, weights: Mapping[str, Tensor], optimizers: Optimizers, recipe: Any) -> Any:
    """Take up weights and optimizers, and return where the training stands; a ValueError if it is of another recipe."""
    moments: list[dict[int, dict[str, Tensor]]] = [defaultdict(dict) for _ in optimizers]
    with safe_open(path, framework="pt") as file:
        if file.metadata()["recipe"] != json.dumps(recipe):
            raise ValueError(f"{path} is of another recipe; give another --out, or delete {path.parent}")
        for key in file.keys():  # noqa: SIM118 (no mapping)
            part, _, rest = key.partition("/")
            if part == "weights":
                weights[rest].copy_(file.get_tensor(key))
            else:
                number, _, name = rest.partition("/")
                moments[int(part)][int(number)][name] = file.get_tensor(key)
        for optimizer, own in zip(optimizers, moments, strict=True):
            optimizer.load_state_dict(optimizer.state_dict() | {"state": own})
        return json.loads(file.metadata()["state"])
