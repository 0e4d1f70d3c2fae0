"""Muon for a rule adapter's matrices with AdamW for its vectors; the paper's AdamW is the Trainer's own.

Muon steps along an orthogonal matrix near the gradient, so all directions of a projection move alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .rule_model import RuleModel

MOMENTUM, STEPS, SMALLEST_NORM = 0.95, 5, 1e-7
COEFFICIENTS = 3.4445, -4.775, 2.0315
"""Of `torch.optim.Muon`."""


class MuonAdamW(torch.optim.AdamW):
    """AdamW, but Muon in groups of matrices that say ``muon``; one optimizer with one state, as a Trainer wants it.

    Muon has the rates of AdamW (PyTorch's "match_rms_adamw"), in the gradients' arithmetic: PyTorch's own (2.13) makes
    every update in bfloat16, which few CPUs have.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = self.param_groups
        for group in groups:
            if not group.get("muon"):
                continue
            rate = float(group["lr"])
            for weight in group["params"]:
                if (gradient := weight.grad) is None:
                    continue
                if weight not in self.state:  # with a step, which AdamW looks for in any state that it loads
                    self.state[weight] |= {"step": torch.zeros(()), "momentum": torch.zeros_like(gradient)}
                momentum = self.state[weight]["momentum"].lerp_(gradient, 1 - MOMENTUM)
                update = _orthogonal(gradient.lerp(momentum, MOMENTUM))  # Nesterov's
                weight.mul_(1 - rate * group["weight_decay"])
                weight.add_(update, alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))
        self.param_groups = [group for group in groups if not group.get("muon")]  # AdamW goes over the others
        try:
            super().step()
        finally:
            self.param_groups = groups
        return loss


def _orthogonal(matrix: Tensor) -> Tensor:
    """Return about the nearest orthogonal matrix by Newton-Schulz steps: singular values come near to one."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(SMALLEST_NORM)
    for _ in range(STEPS):  # X <- a X + (b G + c G²) X with G = X X^T
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def muon_optimizer(module: RuleModel, value_rate: float) -> MuonAdamW:
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
    decay = {"muon": True, "weight_decay": recipe.weight_decay}
    groups: list[dict[str, Any]] = [
        {"params": matrices, **decay},
        {"params": values, "lr": rate * value_rate, **decay},
        {"params": vectors},
    ]
    return MuonAdamW([group for group in groups if group["params"]], lr=rate, weight_decay=0.0)
