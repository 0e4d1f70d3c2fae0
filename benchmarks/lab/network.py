"""A pretrained model with low-rank changes (LoRA), and its forward pass over trees: a list of rules, many questions.

Rules are read once for all questions on them: a branch sees its prefix and itself, no other branch. They are read as a
list, as in a prompt, or each apart, as token memory reads them (`dynarule.plus.token_memory`): no rule sees another,
and all end right before a branch. Frozen weights and what is added to them are one matrix of bfloat16, so the pass
costs what the plain model's costs; gradients go to the two thin factors, which stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALE = 2.0  # alpha is twice the rank
BLOCK = 128  # tokens whose logits are in memory


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


class _TokenLosses(torch.autograd.Function):
    """Cross-entropy by token with a frozen output matrix, a block at a time: all logits at once take a second pass."""

    @staticmethod
    def forward(ctx: Any, states_NC: Tensor, output_VC: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
        losses, right, grads = [], [], []
        for x_NC, of_N in zip(states_NC.split(BLOCK), target_N.split(BLOCK), strict=True):
            logits_NV = F.linear(x_NC, output_VC).float()
            right.append(logits_NV.argmax(-1) == of_N)
            total_N1, own_N1 = logits_NV.logsumexp(-1, keepdim=True), logits_NV.gather(-1, of_N[:, None])
            losses.append((total_N1 - own_N1)[:, 0])
            share_NV = logits_NV.sub_(total_N1).exp_()
            share_NV.scatter_add_(-1, of_N[:, None], torch.full_like(own_N1, -1))
            grads.append(share_NV.to(x_NC.dtype) @ output_VC)
        ctx.save_for_backward(torch.cat(grads))
        ctx.mark_non_differentiable(right_N := torch.cat(right))
        return torch.cat(losses), right_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (grad_NC,) = ctx.saved_tensors
        return grad_N[:, None].to(grad_NC.dtype) * grad_NC, None, None


def answer_losses(model: Any, tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """Return of all tokens that are to be predicted the loss, whether it was the likeliest, and the branch."""
    device, count, width = model.device, len(tree.branches), tree.width
    ids_BW = torch.zeros(count, width, dtype=torch.long)
    wanted_BW = torch.zeros(count, width, dtype=torch.bool)
    for row, branch in enumerate(tree.branches):
        ids_BW[row, : len(branch.ids)] = torch.tensor(branch.ids)
        wanted_BW[row, : len(branch.ids)] = torch.tensor(branch.wanted)
    ids_T = torch.cat((torch.tensor(tree.prefix, dtype=torch.long), ids_BW.flatten()))
    begin, config = len(tree.prefix), model.config
    places_T = torch.cat((tree.places, torch.arange(width).repeat(count)))
    states_TC = model.model(
        ids_T[None].to(device),
        position_ids=(places_T - places_T.min())[None].to(device),
        use_cache=False,
        tree=Sight.of(tree, config.num_attention_heads // config.num_key_value_heads, device),
    ).last_hidden_state[0]
    where_N = begin + wanted_BW.flatten().nonzero()[:, 0]
    losses_N, right_N = _TokenLosses.apply(
        states_TC[(where_N - 1).to(device)], model.lm_head.weight, ids_T[where_N].to(device)
    )
    return losses_N, right_N, (where_N - begin) // width


class Sight(NamedTuple):
    """What the tokens of a tree see: masks of the prefix and of every branch, made once for all layers."""

    begin: int  # tokens of the prefix
    count: int  # branches
    prefix_PP: Tensor
    branch_QS: Tensor  # of the G query heads of a group, one below the other; all of the prefix, then itself

    @classmethod
    def of(cls, tree: Tree, group: int, device: torch.device) -> Sight:
        """Return a tree's masks; G query heads share one of K key heads."""
        begin, width = len(tree.prefix), tree.width
        prefix_PP, own_WW = (torch.ones(size, size, dtype=torch.bool).tril() for size in (begin, width))
        if (hidden_PP := tree.hidden) is not None:
            prefix_PP &= ~hidden_PP
        branch_WS = torch.cat((torch.ones(width, begin, dtype=torch.bool), own_WW), 1)
        masks = (mask.repeat(group, 1).to(device) for mask in (prefix_PP, branch_WS))
        return cls(begin, len(tree.branches), *masks)


def tree_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Let the prefix see itself, and every branch the prefix and itself."""
    sight: Sight = kwargs["tree"]
    begin, count = sight.begin, sight.count
    (_, heads, length, size), kv = query.shape, key.shape[1]
    group, width = heads // kv, (length - begin) // count
    q_KGTD = query.view(kv, group, length, size)
    prefix, branches = [], []
    for x_KTD in (key[0], value[0]):
        own_BKWD = x_KTD[:, begin:].view(kv, count, width, size).transpose(0, 1)
        prefix.append(x_KTD[None, :, :begin])
        branches.append(torch.cat((prefix[-1].expand(count, -1, -1, -1), own_BKWD), 2))
    attend = partial(F.scaled_dot_product_attention, scale=scaling)
    first_1KRD = attend(q_KGTD[:, :, :begin].reshape(1, kv, group * begin, size), *prefix, sight.prefix_PP)
    q_BKRD = q_KGTD[:, :, begin:].view(kv, group, count, width, size).permute(2, 0, 1, 3, 4)
    rest_BKRD = attend(q_BKRD.reshape(count, kv, group * width, size), *branches, sight.branch_QS)
    rest_KGBWD = rest_BKRD.view(count, kv, group, width, size).permute(1, 2, 0, 3, 4)
    both = first_1KRD.view(heads, begin, size), rest_KGBWD.reshape(heads, count * width, size)
    return torch.cat(both, 1).transpose(0, 1)[None], None


AttentionInterface.register("tree", tree_attention)
