"""Optimizers of rule adapters: AdamW as in the paper, or Muon for matrices with AdamW for the rest.

Muon steps along an orthogonal matrix near to the gradient, so all directions of a projection move alike. On a base of
a few million parameters it finds rules in a third of AdamW's steps; the paper's recipe stays AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from .recipe import Recipe


class Parts(Optimizer):
    """Several optimizers of different parameters as one: one scheduler, one state.

    Parameters
    ----------
    parts : iterable of torch.optim.Optimizer
    """

    def __init__(self, parts: Iterable[Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
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
        self._share()


def rule_optimizer(module: nn.Module, recipe: Recipe) -> Optimizer:
    """Return Muon for a module's trained matrices and AdamW for its vectors, at the recipe's rates.

    Matrices of values step at ``value_rate`` times the learning rate, vectors at ``vector_rate`` times.
    """
    trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    rate = recipe.learning_rate

    def group(chosen: Callable[[str, torch.Tensor], bool], factor: float) -> list[dict[str, Any]]:
        found = [each for name, each in trained if chosen(name, each)]
        return [{"params": found, "lr": rate * factor}] if found else []

    matrices = [
        *group(lambda name, each: each.ndim == 2 and not name.endswith(".v.weight"), 1.0),
        *group(lambda name, each: each.ndim == 2 and name.endswith(".v.weight"), recipe.value_rate),
    ]
    vectors = group(lambda _, each: each.ndim != 2, recipe.vector_rate)
    muon = torch.optim.Muon(
        matrices, lr=rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return Parts([muon, torch.optim.AdamW(vectors, lr=rate, weight_decay=0.0)] if vectors else [muon])
