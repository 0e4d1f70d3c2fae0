"""Rules as the frozen model itself reads them: keys and values of their tokens, computed once a rule.

A rule's states follow from its text alone, since the model's weights stay. So a bank may change at any time: another
text is another entry, as rules are that are read together. Rules that are found together and are not read yet may be
read in one forward with the text: who sees whom is a mask, who stands where a position, so that nothing differs from a
forward over the rules, and then one over the text.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from ..attention import additive
from ..base_model import first_layers, padded
from ..tokenizer import text_ids

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


MOST_RULES = 1024
"""Rules whose states are kept for the next time."""


class RuleStates:
    """What a model makes of rules' texts, each read alone, its last token at position -1.

    A rule is a line: its text and a line end. It is read after the tokens with which the tokenizer opens every text, if
    it does; their states are left out, since the prompt has its own. A tokenizer may have such a token and not write it
    (SmolLM2): then a rule's first token is what the others rest their attention on, here as in a prompt. Were it put
    before each rule and left out, they would have no such place, and the model reads nothing.

    Parameters
    ----------
    model : torch.nn.Module
        The answering model.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    most : int
        States of so many rules are kept, those used last. A text of several lines counts as so many rules: it takes as
        much memory.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, most: int = MOST_RULES) -> None:
        self.model, self.tokenizer, self.most = model, tokenizer, most
        self._decoder: Any = model.get_decoder()  # type: ignore[operator]
        self._layers = first_layers(self._decoder, len(self._decoder.layers))
        self._kept: OrderedDict[str, States] = OrderedDict()
        config = self._decoder.config
        full = {*(getattr(config, "layer_types", None) or ())} == {"full_attention"}
        self._whole = full or getattr(config, "sliding_window", None) is None  # a window masks by itself

    def __call__(self, texts: Sequence[str]) -> list[States]:
        """Return the states of rules, computing those that are not at hand in one forward."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        return self.keep(dict(zip(new, self._read(new), strict=True)), texts)

    def keep(self, made: Mapping[str, States], texts: Sequence[str]) -> list[States]:
        """Keep what was read here or elsewhere; return the states of some rules, which are used now."""
        self._kept.update(made)
        for text in texts:
            self._kept.move_to_end(text)
        states = [self._kept[text] for text in texts]
        kept = sum(map(_lines, self._kept))
        while kept > self.most:
            kept -= _lines(self._kept.popitem(last=False)[0])
        return states

    def unread(self, text: str, shift_T: Tensor | None = None) -> Unread | None:
        """Return what is left to read of rules that stand together; None if it is nothing, or a rule alone.

        ``shift_T`` is what is added to the scores of each token.
        """
        if text in self._kept or "\n" not in text or not self._whole:
            return None
        return Unread(text, *self.tokens(text), shift_T)

    def tokens(self, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens with which every text opens, and those of its rules' lines."""
        # A rule may spell a control token, and says no more than its letters by it.
        lines = [f"{line}\n" for line in text.split("\n")]
        ids = [id for line in lines for id in text_ids(self.tokenizer, line, False)]
        opened = text_ids(self.tokenizer, lines[0], True)
        return next((opened[:n] for n in range(len(opened)) if opened[n] == ids[0]), []), ids

    @torch.no_grad()
    def _read(self, texts: list[str]) -> list[States]:
        if not texts:
            return []
        lead, _ = self.tokens(texts[0])
        rows = [lead + self.tokens(text)[1] for text in texts]
        ids_BT, mask_BT = padded(rows)
        cache = DynamicCache()
        device = self._decoder.embed_tokens.weight.device
        self._layers.config._attn_implementation = self._decoder.config._attn_implementation
        self._layers(
            input_ids=ids_BT.to(device),
            attention_mask=mask_BT.to(device),
            position_ids=(torch.arange(ids_BT.shape[1]) - mask_BT.sum(-1, keepdim=True)).to(device),
            past_key_values=cache,
            use_cache=True,
        )
        key, value = (
            torch.stack([getattr(layer, side) for layer in cache.layers]) for side in ("keys", "values")
        )
        places = [(at, slice(len(lead), len(row))) for at, row in enumerate(rows)]
        return [(key[:, at, :, of].clone(), value[:, at, :, of].clone()) for at, of in places]


def _lines(text: str) -> int:
    return text.count("\n") + 1
