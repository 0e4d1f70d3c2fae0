"""A pretrained model with low-rank changes (LoRA), and its forward pass over trees: a list of rules, many questions.

Rules are read once for all questions on them: a branch sees its prefix and itself, no other branch. They are read as a
list, as in a prompt, or each apart, as token memory reads them (`dynarule.plus.token_memory`): no rule sees another,
and all end right before a branch. Frozen weights and what is added to them are one matrix of bfloat16, so the pass
costs what the plain model's costs; gradients go to the two thin factors, which stay in float32.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from documents import Document
from dynarule.attention import additive
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALE = 2.0  # alpha is twice the rank
BLOCK = 128  # tokens whose logits are in memory


class Tree(NamedTuple):
    """A list of rules, and questions on it that do not see each other; its ingredient names it in the log."""

    prefix: list[int]
    branches: list[Document]
    ingredient: str
    apart: tuple[int, ...] = ()  # tokens of each rule, if they are read apart

    @property
    def places(self) -> Tensor:
        """Return the places of the prefix, of which the branches go on at 0."""
        sizes = torch.tensor(self.apart or (len(self.prefix),))
        return torch.arange(len(self.prefix)) - sizes.cumsum(0).repeat_interleave(sizes)

    @property
    def seen(self) -> Tensor | None:
        """Return what each token of the prefix sees of it; None: all before it."""
        if not self.apart:
            return None
        rule_P = torch.arange(len(self.apart)).repeat_interleave(torch.tensor(self.apart))
        return (rule_P[:, None] == rule_P).tril()

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


def add_lora(model: Any, layers: Sequence[int], rank: int) -> dict[str, LoraLinear]:
    """Replace the matrices of some layers; return them by their names in PEFT's files."""
    for weight in model.parameters():
        weight.requires_grad_(False)
    changed = {}
    for number in layers:
        for part in ("self_attn", "mlp"):
            module, place = getattr(model.model.layers[number], part), f"model.layers.{number}.{part}"
            for name in LINEAR:
                if isinstance(linear := getattr(module, name, None), nn.Linear):
                    own = changed[f"base_model.model.{place}.{name}"] = LoraLinear(linear, rank)
                    setattr(module, name, own)
    return changed


def _token_losses(states_NC: Tensor, output_VC: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of some tokens, and whether each was the likeliest."""
    logits_NV = F.linear(states_NC, output_VC).float()
    return F.cross_entropy(logits_NV, target_N, reduction="none"), logits_NV.detach().argmax(-1) == target_N


def answer_losses(model: Any, tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """Return of all tokens that are to be predicted the loss, whether it was the likeliest, and the branch."""
    cache, device, dtype = DynamicCache(), model.device, model.dtype
    places_P = tree.places
    longest = -int(places_P.min()) if tree.prefix else 0
    if tree.prefix:
        model.model(
            torch.tensor([tree.prefix]).to(device),
            attention_mask=None if tree.seen is None else additive(tree.seen, dtype)[None, None].to(device),
            position_ids=(places_P + longest)[None].to(device),
            past_key_values=cache,
            use_cache=True,
        )
        cache.batch_repeat_interleave(len(tree.branches))
    rows = [torch.tensor([branch.ids, branch.wanted]) for branch in tree.branches]
    ids_BW, wanted_BW = pad_sequence([row.T for row in rows], batch_first=True).to(device).unbind(-1)
    states_BWC = model.model(
        ids_BW,
        position_ids=torch.arange(longest, longest + tree.width)[None].to(device),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    wanted_BW = wanted_BW.bool()[:, 1:]
    states_NC, target_N = states_BWC[:, :-1][wanted_BW], ids_BW[:, 1:][wanted_BW]
    # logits of a block at a time are in memory, and made again in the backward pass
    blocks = zip(states_NC.split(BLOCK), target_N.split(BLOCK), strict=True)
    parts = [
        checkpoint(_token_losses, x_NC, model.lm_head.weight, of_N, use_reentrant=False)
        for x_NC, of_N in blocks
    ]
    losses_N, right_N = (torch.cat(side) for side in zip(*parts, strict=True))
    return losses_N, right_N, wanted_BW.nonzero()[:, 0]
