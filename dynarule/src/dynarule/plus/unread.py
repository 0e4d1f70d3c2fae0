"""Rules that stand together and are not read yet, and how a model reads them: alone, or in front of its text.

Both are one forward over tokens that stand behind others in a cache. Who sees whom is a mask, who stands where a
position, so that nothing differs from a forward over the rules, and then one over the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..attention import additive

States = tuple[Tensor, Tensor]
"""Keys with RoPE and values of a rule's tokens in all layers, (layers, G, T, D)."""


@dataclass(frozen=True)
class Unread:
    """A text of several rules, of whose tokens the states of the first P are at hand, or none; R are to be read.

    Places are counted from the end of the text, -1.
    """

    text: str
    lead: list[int]  # tokens that open every text: read again, seen by the others, not by the prompt
    ids: list[int]  # of the text
    known: States | None  # of the P, at their places
    shift_T: Tensor | None = None  # what is added to the scores of each token of the text

    @cached_property
    def place_S(self) -> Tensor:
        """Places of the P, then of the R."""
        places = torch.arange(-len(self.lead) - len(self.ids), 0)
        lead, first, rest = places.tensor_split([len(self.lead), len(self.lead) + self.count])
        return torch.cat([first, lead, rest])

    @property
    def count(self) -> int:
        """P."""
        return 0 if self.known is None else self.known[0].shape[2]

    @cached_property
    def new_R(self) -> Tensor:
        """Tokens to read."""
        return torch.tensor(self.lead + self.ids[self.count :])

    @property
    def place_R(self) -> Tensor:
        """Their places."""
        return self.place_S[-len(self.new_R) :]

    @property
    def seen_RS(self) -> Tensor:
        """What each of them sees of the P and the R."""
        return self.place_S <= self.place_R[:, None]

    def add_to(self, cache: Any) -> None:
        """Append the P to a cache of one row."""
        if self.known is not None:
            for number, (key_GPD, value_GPD) in enumerate(zip(*self.known, strict=True)):
                cache.update(key_GPD[None], value_GPD[None], number)

    def take_from(self, cache: Any, start: int) -> States:
        """Move the P and the R, which stand from ``start`` on in a cache of one row, out of it; return the text's."""
        stop, order_T = start + len(self.place_S), self.place_S.argsort()[len(self.lead) :]
        taken: list[list[Tensor]] = [[], []]
        for layer in cache.layers:
            for side, name in zip(taken, ("keys", "values"), strict=True):
                state = getattr(layer, name)
                side.append(state[0, :, start:stop][:, order_T])
                rest = state[:, :, stop:].clone()
                state[:, :, start : start + rest.shape[2]] = rest
                setattr(layer, name, state[:, :, : start + rest.shape[2]])
        return torch.stack(taken[0]), torch.stack(taken[1])

    def in_front_of(self, given: Mapping[str, Any], real_S: Tensor, dtype: torch.dtype) -> dict[str, Any]:
        """Return what a decoder is given to read the R before its own T tokens, one row; ``real_S`` are no padding.

        The P are put behind what is in its cache, and the R join them there.
        """
        ids_BT, cache, places = given["input_ids"], given["past_key_values"], len(self.place_S)
        reads, tokens, past = len(self.new_R), ids_BT.shape[1], cache.get_seq_length()
        rules = slice(past, past + places)
        seen = torch.zeros(reads + tokens, past + places + tokens, dtype=torch.bool)
        seen[:reads, rules] = self.seen_RS
        seen[reads:, :past] = real_S[:past].cpu()
        seen[reads:, rules] = self.place_S >= -len(self.ids)
        seen[reads:, past + places :] = torch.ones(tokens, tokens).tril().bool() & real_S[past:].cpu()
        mask = additive(seen, dtype)
        if self.shift_T is not None:
            mask[reads:, rules] += self.shift_T[self.place_S.clamp_min(-len(self.ids))]
        self.add_to(cache)
        own = {
            "input_ids": torch.cat([self.new_R[None].to(ids_BT), ids_BT], 1),
            "position_ids": torch.cat([self.place_R[None].to(ids_BT), given["position_ids"]], 1),
            "attention_mask": mask[None, None].to(ids_BT.device),
        }
        return {**given, **own}


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
