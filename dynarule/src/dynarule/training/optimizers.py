"""How a rule adapter's matrices learn quickly: Muon, with AdamW for its vectors, and whitened coordinates.

Muon steps along an orthogonal matrix near the gradient, so all directions of a projection move alike. The paper's AdamW
is the Trainer's own. Embeddings of rules are much alike: most of their variance lies in a few directions, and what
tells one rule from the next is left to the others, which a gradient hardly moves; whitened, they vary alike in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations

from ..bank.bank import RuleBank

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
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step from the gradients that are there; a Trainer gives no closure that would make them."""
        assert closure is None
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


FLOOR = 0.01
"""Part of the mean variance that every direction of the embeddings is taken to have at least."""


class _White(nn.Module):
    """A parametrization: the weight for embeddings as they are, of what is trained for whitened ones."""

    def __init__(self, white_PP: Tensor) -> None:
        super().__init__()
        self.white_PP: Tensor
        self.register_buffer("white_PP", white_PP, persistent=False)  # of the bank, no part of a checkpoint

    def forward(self, trained: Tensor) -> Tensor:
        return trained @ self.white_PP

    def right_inverse(self, weight: Tensor) -> Tensor:
        return torch.linalg.solve(self.white_PP, weight, left=False)


def whiten(projections: Iterable[Any], bank: RuleBank) -> None:
    """Let the trained key and value projections learn for a bank's embeddings whitened; they stay the same maps."""
    for name, table_MP in (("k", bank.keys_MP), ("v", bank.values_MP)):
        white_PP = whitening(table_MP) * math.sqrt(table_MP.shape[1])
        for projection in projections:
            linear = getattr(projection, name, None)
            if linear is not None and linear.weight.requires_grad:
                register_parametrization(linear, "weight", _White(white_PP.to(linear.weight)))


def fold(projections: Iterable[Any]) -> None:
    """Leave projections with weights of their own again."""
    for projection in projections:
        for linear in projection.children():
            if is_parametrized(linear, "weight"):
                remove_parametrizations(linear, "weight")


def whitening(embeddings_MP: Tensor, block: int = 65_536) -> Tensor:
    """Return the symmetric (P, P) matrix, fp32, that gives embeddings the same variance in all directions.

    Their mean square is one afterwards. Directions below `FLOOR` of the mean variance stay smaller: they are noise.
    """
    width = embeddings_MP.shape[1]
    moment_PP = torch.zeros(width, width, dtype=torch.float64, device=embeddings_MP.device)
    for rows in embeddings_MP.split(block):
        moment_PP += (rows.float().T @ rows.float()).double()
    variance_P, axes_PP = torch.linalg.eigh(moment_PP / len(embeddings_MP))
    floored_P = variance_P.clamp_min(0) + FLOOR * variance_P.mean()
    return ((axes_PP / (width * floored_P).sqrt()) @ axes_PP.T).float()
