"""A pretrained model with low-rank changes (LoRA), and its forward pass over trees: a list of rules, many questions.

Rules are read once for all questions on them: a branch sees its prefix and itself, no other branch. They are read as a
list, as in a prompt, or each apart, as token memory reads them (`dynarule.plus.token_memory`): no rule sees another,
and all end right before a branch. Frozen weights and what is added to them are one matrix of bfloat16, so the pass
costs what the plain model's costs; gradients go to the two thin factors, which stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALE = 2.0  # alpha is twice the rank
OUT_OF_SIGHT = -1e4


class Branch(NamedTuple):
    """What follows a prefix: tokens, and which of them are to be predicted."""

    ids: list[int]
    wanted: list[bool]
    kind: str


class Tree(NamedTuple):
    """A list of rules, and questions on it that do not see each other; its ingredient names it in the log."""

    prefix: list[int]
    branches: list[Branch]
    ingredient: str
    apart: tuple[int, ...] = ()  # tokens of each rule, if they are read apart

    @property
    def places(self) -> Tensor:
        """Return the places of the prefix, of which the branches go on at 0."""
        sizes = torch.tensor(self.apart or (len(self.prefix),))
        return torch.arange(len(self.prefix)) - sizes.cumsum(0).repeat_interleave(sizes)

    @property
    def hidden(self) -> Tensor | None:
        """Return what no token of the prefix sees because it is of another rule; None: nothing."""
        if not self.apart:
            return None
        rule_P = torch.arange(len(self.apart)).repeat_interleave(torch.tensor(self.apart))
        return rule_P[:, None] != rule_P

    @property
    def width(self) -> int:
        """Return the length to which branches are padded."""
        return max(len(branch.ids) for branch in self.branches)

    @property
    def size(self) -> int:
        """Return the tokens that a pass over it computes, padding included."""
        return len(self.prefix) + len(self.branches) * self.width


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, down, up)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor]:
        x, weight, down, up = ctx.saved_tensors
        x_NI, grad_NO = x.flatten(0, -2), grad.flatten(0, -2)
        grad_down = (grad_NO @ up.to(x.dtype)).T @ x_NI
        grad_up = grad_NO.T @ (x_NI @ down.to(x.dtype).T)
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        return grad_x, None, None, SCALE * grad_down.float(), SCALE * grad_up.float()


class LoraLinear(nn.Module):
    """A frozen matrix and the product of two thin ones, joined by `join` after every step."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen, self.joined, self.bias = linear.weight.data, linear.weight.data.clone(), linear.bias
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) * linear.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    @torch.no_grad()
    def join(self) -> None:
        """Take up what the thin matrices are now."""
        self.joined.copy_(self.frozen.float() + SCALE * self.up @ self.down)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the joined matrix."""
        return _Joined.apply(x, self.joined, self.bias, self.down, self.up)


def add_lora(model: Any, layers: Mapping[int, int]) -> dict[str, LoraLinear]:
    """Replace the matrices of some layers, each with its rank; return them by their names in PEFT's files."""
    for weight in model.parameters():
        weight.requires_grad_(False)
    changed = {}
    for number, rank in layers.items():
        for part in ("self_attn", "mlp"):
            module = getattr(model.model.layers[number], part)
            for name in LINEAR:
                if isinstance(linear := getattr(module, name, None), nn.Linear):
                    changed[f"base_model.model.model.layers.{number}.{part}.{name}"] = LoraLinear(
                        linear, rank
                    )
                    setattr(module, name, changed[f"base_model.model.model.layers.{number}.{part}.{name}"])
    model.config._attn_implementation = "tree"
    return changed


def answer_logits(model: Any, tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of all tokens that are to be predicted, the tokens, and the branch of each."""
    device, count, width = model.device, len(tree.branches), tree.width
    ids_BW = torch.zeros(count, width, dtype=torch.long)
    wanted_BW = torch.zeros(count, width, dtype=torch.bool)
    for row, branch in enumerate(tree.branches):
        ids_BW[row, : len(branch.ids)] = torch.tensor(branch.ids)
        wanted_BW[row, : len(branch.ids)] = torch.tensor(branch.wanted)
    ids_T = torch.cat((torch.tensor(tree.prefix, dtype=torch.long), ids_BW.flatten()))
    begin, hidden_PP = len(tree.prefix), tree.hidden
    places_T = torch.cat((tree.places, torch.arange(width).repeat(count)))
    states_TC = model.model(
        ids_T[None].to(device),
        position_ids=(places_T - places_T.min())[None].to(device),
        use_cache=False,
        tree=(begin, count, None if hidden_PP is None else hidden_PP.to(device)),
    ).last_hidden_state[0]
    where_N = begin + wanted_BW.flatten().nonzero()[:, 0]
    logits_NV = model.lm_head(states_TC[(where_N - 1).to(device)]).float()
    return logits_NV, ids_T[where_N].to(device), (where_N - begin) // width


@lru_cache(maxsize=64)
def _causal(size: int, groups: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    later = torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
    return (
        torch.zeros(size, size, dtype=dtype, device=device)
        .masked_fill_(later, OUT_OF_SIGHT)
        .repeat(groups, 1)[None]
    )


def tree_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Let the prefix see itself, and every branch the prefix and itself; G query heads share one of K key heads."""
    begin, count, hidden_PP = kwargs["tree"]
    (_, heads, length, size), kv = query.shape, key.shape[1]
    group, width = heads // kv, (length - begin) // count
    q_KGTD, k_KTD, v_KTD = (query * scaling)[0].view(kv, group, length, size), key[0], value[0]
    k_KPD, v_KPD, q_KGRD = k_KTD[:, :begin], v_KTD[:, :begin], q_KGTD[:, :, begin:]
    q_KPD = q_KGTD[:, :, :begin].reshape(kv, group * begin, size)
    mask_1QP = _causal(begin, group, query.dtype, query.device)
    if hidden_PP is not None:
        mask_1QP = mask_1QP.masked_fill(hidden_PP.repeat(group, 1), OUT_OF_SIGHT)
    first = torch.baddbmm(mask_1QP, q_KPD, k_KPD.mT)
    first_HPD = torch.bmm(first.softmax(-1), v_KPD).view(heads, begin, size)

    def by_branch(
        x_KGRD: Tensor,
    ) -> Tensor:  # all rows of a branch together: (kv * count, group * width, ...)
        last = x_KGRD.shape[-1]
        return (
            x_KGRD.view(kv, group, count, width, last)
            .transpose(1, 2)
            .reshape(kv * count, group * width, last)
        )

    far = torch.bmm(q_KGRD.reshape(kv, -1, size), k_KPD.mT).view(kv, group, count * width, begin)
    own_k, own_v = (x_KTD[:, begin:].reshape(kv * count, width, size) for x_KTD in (k_KTD, v_KTD))
    near = torch.baddbmm(_causal(width, group, query.dtype, query.device), by_branch(q_KGRD), own_k.mT)
    near = near.view(kv, count, group, width, width).transpose(1, 2).reshape(kv, group, -1, width)
    seen = torch.cat((far, near), -1).softmax(-1)
    rest = torch.bmm(seen[..., :begin].reshape(kv, group * count * width, begin), v_KPD)
    rest = rest.view(kv, group, count, width, size)
    own = torch.bmm(by_branch(seen[..., begin:]), own_v).view(kv, count, group, width, size).transpose(1, 2)
    return torch.cat((first_HPD, (rest + own).reshape(heads, -1, size)), 1).transpose(0, 1)[None], None


AttentionInterface.register("tree", tree_attention)
