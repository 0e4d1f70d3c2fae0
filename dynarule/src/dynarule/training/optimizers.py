"""Muon for a rule adapter's matrices with AdamW for its vectors; the paper's AdamW is the Trainer's own.

Muon steps along an orthogonal matrix near the gradient, so all directions of a projection move alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from .rule_model import RuleModel


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` with the rates of AdamW ("match_rms_adamw"), in the gradients' arithmetic.

    PyTorch's own (2.13) makes every update in bfloat16, which few CPUs have.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            rate, keep = float(group["lr"]), group["momentum"]
            for weight in group["params"]:
                if (gradient := weight.grad) is None:
                    continue
                state = self.state[weight]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                momentum = state["momentum_buffer"].lerp_(gradient, 1 - keep)
                update = gradient.lerp(momentum, keep) if group["nesterov"] else momentum
                update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                weight.mul_(1 - rate * group["weight_decay"])
                weight.add_(update, alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))
        return loss


def _orthogonal(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, smallest_norm: float
) -> Tensor:
    """Return about the nearest orthogonal matrix by Newton-Schulz steps: singular values come near to one."""
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(smallest_norm)
    for _ in range(steps):  # X <- a X + (b G + c G²) X with G = X X^T
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class CombinedOptimizer(Optimizer):
    """Several optimizers of different parameters as one: one scheduler, one state."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share_groups()

    def _share_groups(self) -> None:
        # The same dicts, so that a scheduler's rates reach the parts.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Step all parts; a closure is called once, before."""
        loss = None if closure is None else closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the parts' states by their number."""
        return {"state": {str(i): part.state_dict() for i, part in enumerate(self.parts)}, "param_groups": []}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for i, part in enumerate(self.parts):
            part.load_state_dict(state_dict["state"][str(i)])
        self._share_groups()


def muon_optimizer(module: RuleModel, value_rate: float) -> Optimizer:
    """Return Muon for a module's trained matrices, AdamW for its vectors; value projections step faster."""
    recipe = module.recipe
    rate = recipe.learning_rate
    values: list[torch.nn.Parameter] = []
    matrices: list[torch.nn.Parameter] = []
    vectors: list[torch.nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        # The row of <search> is a matrix of one row, which has no directions to step alike.
        if parameter.ndim != 2 or len(parameter) == 1:
            vectors.append(parameter)
        else:
            (values if ".v." in name else matrices).append(parameter)
    groups = [{"params": matrices, "lr": rate}, {"params": values, "lr": rate * value_rate}]
    muon = Float32Muon([g for g in groups if g["params"]], lr=rate, weight_decay=recipe.weight_decay)
    if not vectors:
        return muon
    return CombinedOptimizer([muon, torch.optim.AdamW(vectors, lr=rate, weight_decay=0.0)])
