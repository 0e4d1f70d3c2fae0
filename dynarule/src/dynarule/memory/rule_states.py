"""Rules as the frozen model itself reads them: keys and values of their tokens, computed once a rule.

Of one model, whose weights stay, a rule's states hang on its text alone. So a bank may change at any time: another text
is another entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base_model import first_layers

MOST_RULES = 1024
"""Rules whose states are kept for the next time."""

RESTS_AT = -128
"""Position of the line end that attention rests on: before all rules of a usual length."""

States = tuple[Tensor, Tensor]
"""Keys with RoPE and values of a rule's tokens in all layers, (layers, G, T, D)."""


class RuleStates:
    """What a model makes of rules' texts, each read alone, its last token at position -1.

    A rule is a line: its text and a line end. It is read after the tokens with which the tokenizer opens every text, if
    it does; their states are left out, since the prompt has its own. A tokenizer may have such a token and not write it
    (SmolLM2): then the first token of a text is what the others rest their attention on. With ``rest`` that is one line
    end before all rules, read once and readable beside them, as a prompt has one such place; without it each rule's own
    first token, and the more rules are read, the more of the attention rests.

    Parameters
    ----------
    model : torch.nn.Module
        The answering model.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    most : int
        States of so many rules are kept; the one that was not asked for longest goes first.
    rest : bool
        Put one line end before all rules, where the tokenizer opens no text itself.

    Attributes
    ----------
    resting : States or None
        That line end's.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, most: int = MOST_RULES, rest: bool = False) -> None:
        self.tokenizer, self.most, self.rest = tokenizer, most, rest
        self.resting: States | None = None
        self._decoder: Any = model.get_decoder()  # type: ignore[operator]
        self._layers = first_layers(self._decoder, len(self._decoder.layers))
        self._kept: OrderedDict[str, States] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, texts: Sequence[str]) -> list[States]:
        """Return the states of rules, computing those that are not at hand in one forward."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        self._kept.update(zip(new, self._read(new), strict=True))
        for text in texts:
            self._kept.move_to_end(text)
        found = [self._kept[text] for text in texts]
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return found

    @torch.no_grad()
    def _read(self, texts: list[str]) -> list[States]:
        if not texts:
            return []
        from transformers import DynamicCache

        lines = [f"{text}\n" for text in texts]
        plain = self.tokenizer(lines, add_special_tokens=False)["input_ids"]
        opened = self.tokenizer(lines[0])["input_ids"]
        lead: list[int] = next((opened[:n] for n in range(len(opened)) if opened[n] == plain[0][0]), [])
        if rest := self.rest and not lead:
            lead = self.tokenizer("\n", add_special_tokens=False)["input_ids"]
            if len(lead) != 1:
                raise ValueError(
                    f"rest needs a tokenizer that reads a line end as one token, {type(self.tokenizer).__name__} reads "
                    f"{lead}; set rest=False"
                )
        rows = [lead + ids for ids in plain]
        mask_BT = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        ids_BT, lengths_B = torch.zeros_like(mask_BT), torch.tensor([len(row) for row in rows])
        for at, row in enumerate(rows):
            ids_BT[at, : len(row)], mask_BT[at, : len(row)] = torch.tensor(row), 1
        positions_BT = torch.arange(mask_BT.shape[1]) - lengths_B[:, None]
        if rest:
            positions_BT[:, 0] = RESTS_AT
        cache, device = DynamicCache(), self._decoder.embed_tokens.weight.device
        self._layers.config._attn_implementation = self._decoder.config._attn_implementation
        self._layers(
            input_ids=ids_BT.to(device),
            attention_mask=mask_BT.to(device),
            position_ids=positions_BT.to(device),
            past_key_values=cache,
            use_cache=True,
        )
        key, value = (
            torch.stack([getattr(layer, side) for layer in cache.layers]) for side in ("keys", "values")
        )
        if rest:  # the first token of each row: it sees nothing but itself
            self.resting = key[:, 0, :, :1].clone(), value[:, 0, :, :1].clone()
        places = [(at, slice(len(lead), len(row))) for at, row in enumerate(rows)]
        return [(key[:, at, :, of].clone(), value[:, at, :, of].clone()) for at, of in places]
