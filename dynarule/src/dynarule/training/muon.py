"""Muon in the numbers of its parameters: torch's own makes every step orthogonal in bfloat16.

Most CPUs have no arithmetic for that, and take twenty times as long over it as over float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` with the rates of AdamW ("match_rms_adamw"), whose arithmetic is that of the gradients."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, weight.grad, group)
        return loss

    def _step(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = state["momentum_buffer"]
        momentum.lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate = float(group["lr"])
        weight.mul_(1 - rate * group["weight_decay"])
        weight.add_(update, alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))


def orthogonal(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, least: float = 1e-7
) -> Tensor:
    """Return about the nearest orthogonal matrix by Newton-Schulz steps: singular values come near to one.

    Parameters
    ----------
    matrix : Tensor (A, B)
        Any but zero; below a norm of ``least`` it stays small.
    coefficients : tuple of float
        a, b, c of X <- a X + (b G + c G²) X with G = X X^T.
    steps : int
        How often.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(least)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
