"""Coordinates in which the embeddings of rules vary alike in all directions, and projections learn quickly.

Embeddings of rules are much alike: most of their variance lies in a few directions, and what tells one rule from the
next is left to the others, which a gradient hardly moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations

from ..bank.bank import RuleBank

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
