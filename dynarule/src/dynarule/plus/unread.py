"""Rules that are found together and are not read yet, and how a model reads them in one forward with its text.

Who sees whom is a mask, who stands where a position, so that nothing differs from a forward over the rules, and then
one over the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..attention import additive

States = tuple[Tensor, Tensor]
"""Keys with RoPE and values of a rule's tokens in all layers, (layers, G, T, D)."""


@dataclass(frozen=True)
class Unread:
    """A text of several rules; with the tokens that open every text it has R."""

    text: str
    lead: list[int]  # tokens that open every text: seen by the others, not by the prompt
    ids: list[int]  # of the text
    shift_T: Tensor | None = None  # what is added to the scores of each token of the text

    def __len__(self) -> int:
        """Return R."""
        return len(self.lead) + len(self.ids)

    def take_from(self, cache: Any, start: int) -> States:
        """Move the R, which stand from ``start`` on in a cache of one row, out of it; return the text's."""
        own, stop = slice(start + len(self.lead), start + len(self)), start + len(self)
        taken: list[list[Tensor]] = [[], []]
        for layer in cache.layers:
            for side, name in zip(taken, ("keys", "values"), strict=True):
                state = getattr(layer, name)
                side.append(state[0, :, own].clone())
                rest = state[:, :, stop:].clone()
                state[:, :, start : start + rest.shape[2]] = rest
                setattr(layer, name, state[:, :, : start + rest.shape[2]])
        return torch.stack(taken[0]), torch.stack(taken[1])

    def in_front_of(self, given: Mapping[str, Any], real_S: Tensor, dtype: torch.dtype) -> dict[str, Any]:
        """Return what a decoder is given to read the R before its own T tokens, one row; ``real_S`` are no padding."""
        ids_BT, reads, past = given["input_ids"], len(self), given["past_key_values"].get_seq_length()
        tokens, own = ids_BT.shape[1], slice(past + len(self.lead), past + reads)
        seen = torch.zeros(reads + tokens, past + reads + tokens, dtype=torch.bool)
        seen[:reads, past : past + reads] = torch.ones(reads, reads).tril().bool()
        seen[reads:, :past] = real_S[:past].cpu()
        seen[reads:, own] = True
        seen[reads:, past + reads :] = torch.ones(tokens, tokens).tril().bool() & real_S[past:].cpu()
        mask = additive(seen, dtype)
        if self.shift_T is not None:
            mask[reads:, own] += self.shift_T
        new_R, place_R = torch.tensor(self.lead + self.ids), torch.arange(-reads, 0)
        changed = {
            "input_ids": torch.cat([new_R[None].to(ids_BT), ids_BT], 1),
            "position_ids": torch.cat([place_R[None].to(ids_BT), given["position_ids"]], 1),
            "attention_mask": mask[None, None].to(ids_BT.device),
        }
        return {**given, **changed}


def open_cache(given: Mapping[str, Any]) -> bool:
    """Say whether a forward leaves what is read in a cache of its own, and asks for nothing but the last states."""
    cache = given.get("past_key_values")
    asks = ("output_hidden_states", "output_attentions")
    return (
        cache is not None
        and not torch.is_grad_enabled()
        and given.get("use_cache", True) is not False
        and given.get("return_dict", True) is not False
        and not any(given.get(name) for name in asks)
    )
