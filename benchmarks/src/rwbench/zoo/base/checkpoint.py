"""The checkpoint of a base's training: one safetensors file, whole or not written, with its state as JSON in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ruleworld_data.io import write_whole
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

Tensors = dict[str, Tensor]


def write_checkpoint(path: Path, parts: Mapping[str, Tensors], state: Mapping[str, Any]) -> None:
    """Write tensors by part and name, and JSON values; the last checkpoint stays until this one is whole."""
    tensors = {
        f"{part}/{name}": value.detach().cpu().contiguous()
        for part, values in parts.items()
        for name, value in values.items()
    }
    write_whole(path, save(tensors, {"state": json.dumps(state)}))


def read_checkpoint(path: Path, device: torch.device) -> tuple[Mapping[str, Tensors], dict[str, Any]]:
    """Return tensors by part and name, and the state.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    parts: dict[str, Tensors] = defaultdict(dict)
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
            for key in file.keys():  # noqa: SIM118 (no mapping)
                part, _, name = key.partition("/")
                parts[part][name] = file.get_tensor(key)
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"the checkpoint {path} is damaged ({error}); delete it to begin anew") from None
    return parts, state


def moments_of(optimizer: torch.optim.Optimizer) -> Tensors:
    """Return what an optimizer remembers of each parameter, as ``number.name``."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def set_moments(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give an optimizer what `moments_of` returned."""
    moments: dict[int, Tensors] = defaultdict(dict)
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        moments[int(number)][name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(moments)})
