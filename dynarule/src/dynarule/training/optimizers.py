"""Optimizers of rule adapters: AdamW as in the paper, or Muon for matrices with AdamW for the rest.

Muon steps along an orthogonal matrix near to the gradient, so all directions of a projection move alike. On a base of
a few million parameters it finds rules in a third of AdamW's steps; the paper's recipe stays AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from .recipe import Recipe
    from .rule_model import RuleModel


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


FLOOR = 0.01
"""Part of the mean variance that every direction of the embeddings is taken to have at least."""


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


def step_whitened(optimizer: Optimizer, inputs: Mapping[Tensor, Tensor]) -> None:
    """Let an optimizer step some matrices W (F, P) as if their inputs were white, which Muon cannot see for itself.

    A noun is a tenth of what an embedding varies by and would be learned last. With the inputs' whitening T, the matrix
    that is stepped is W T^-1, whose gradient is G T.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Steps the matrices, and maybe others.
    inputs : mapping
        `whitening` of each matrix's inputs.
    """
    inverses = {whole: torch.linalg.inv(whole) for whole in set(inputs.values())}

    def before(*_: Any) -> None:
        for weight, white_PP in inputs.items():
            if weight.grad is not None:
                weight.copy_(weight @ inverses[white_PP])
                weight.grad = weight.grad @ white_PP

    def after(*_: Any) -> None:
        for weight, white_PP in inputs.items():
            if weight.grad is not None:
                weight.copy_(weight @ white_PP)

    optimizer.register_step_pre_hook(torch.no_grad()(before))
    optimizer.register_step_post_hook(torch.no_grad()(after))


def rule_optimizer(module: RuleModel, recipe: Recipe) -> Optimizer:
    """Return Muon for a module's trained matrices and AdamW for its vectors, at the recipe's rates.

    Matrices of values step at ``value_rate`` times the learning rate, vectors at ``vector_rate`` times; with ``whiten``
    the projections of rules step as if the rule table's embeddings were white.
    """
    trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    rate = recipe.learning_rate

    def group(chosen: Callable[[str, Tensor], bool], factor: float) -> list[dict[str, Any]]:
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
    if recipe.whiten:
        device = next(module.adapter.parameters()).device
        keys_PP, values_PP = (
            whitening(table_MP).to(device) for table_MP in (module.bank.keys_MP, module.bank.values_MP)
        )
        inputs: dict[Tensor, Tensor] = {}
        for name in module.adapter.layers:
            layer = module.adapter[int(name)]
            inputs |= {layer.k.weight: keys_PP, layer.v.weight: values_PP}
        step_whitened(muon, inputs)
    return Parts([muon, torch.optim.AdamW(vectors, lr=rate, weight_decay=0.0)] if vectors else [muon])
