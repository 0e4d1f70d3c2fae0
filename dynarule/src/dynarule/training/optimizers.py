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

from .recipe import Muon

if TYPE_CHECKING:
    from .rule_model import RuleModel


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
        return {
            "state": {str(i): part.state_dict() for i, part in enumerate(self.parts)},
            "param_groups": [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for i, part in enumerate(self.parts):
            part.load_state_dict(state_dict["state"][str(i)])
        self._share_groups()


def muon_optimizer(module: RuleModel, settings: Muon) -> Optimizer:
    """Return Muon for a module's trained matrices and AdamW for its vectors, at the rates of recipe and addition."""
    recipe = module.recipe
    rate = recipe.learning_rate
    trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    # The row of <search> is a matrix of one row, which has no directions to step alike.
    matrices = {name: each for name, each in trained if each.ndim == 2 and len(each) > 1}
    vectors = [each for name, each in trained if name not in matrices]
    values = [each for name, each in matrices.items() if name.endswith(".v.weight")]
    others = [each for name, each in matrices.items() if not name.endswith(".v.weight")]
    groups = [{"params": others, "lr": rate}, {"params": values, "lr": rate * settings.value_rate}]
    muon = Float32Muon(
        [group for group in groups if group["params"]],
        lr=rate,
        weight_decay=recipe.weight_decay,
    )
    if not vectors:
        return muon
    adamw = torch.optim.AdamW(vectors, lr=rate * settings.vector_rate, weight_decay=0.0)
    return CombinedOptimizer([muon, adamw])
