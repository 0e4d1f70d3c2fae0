"""Rules as the frozen model itself reads them: keys and values of their tokens, computed once a rule.

A rule's states follow from its text alone, since the model's weights stay. So a bank may change at any time: another
text is another entry, as rules are that are read together.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from ..base_model import first_layers, padded
from ..tokenizer import text_ids

States = tuple[Tensor, Tensor]
"""Keys with RoPE and values of a rule's tokens in all layers, (layers, G, T, D)."""


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

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, texts: Sequence[str]) -> list[States]:
        """Return the states of rules, computing those that are not at hand in one forward."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        self._kept.update(zip(new, self._read(new), strict=True))
        for text in texts:
            self._kept.move_to_end(text)
        states = [self._kept[text] for text in texts]
        kept = sum(map(_lines, self._kept))
        while kept > self.most:
            kept -= _lines(self._kept.popitem(last=False)[0])
        return states

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
