"""Where a local model runs, and in which numbers."""

from pathlib import Path
from typing import Any

DEVICE = "_RWBENCH_DEVICE"
"""Variable of the environment that says where models run; where nothing does, on the accelerator there is."""
SMALL = 1 << 31
"""Bytes of weights up to which a model runs in float32 everywhere."""


def usual_dtype(folder: Path, gpu: bool) -> Any:
    """Return in which numbers a model runs: its own if it is large and on an accelerator."""
    import torch

    small = sum(path.stat().st_size for path in folder.glob("*.safetensors")) <= SMALL
    return torch.float32 if small or not gpu else "auto"


def placed(model: Any, device: str) -> Any:
    """Return a model on a device; a ValueError if there is none of that name."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(
            f"no model runs on the device {device!r} here ({first:.200}); type --device cpu"
        ) from None
