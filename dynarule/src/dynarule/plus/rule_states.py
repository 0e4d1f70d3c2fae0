"""Rules as the frozen model itself reads them: keys and values of their tokens, computed once a rule.

A rule's states follow from its text alone, since the model's weights stay. So a bank may change at any time: another
text is another entry. Rules that are read together are another text, which begins with a rule whose own states serve:
RoPE turns a key by its place, so a key that is turned further is the key of another place (`placed`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import additive
from ..base_model import first_layers
from ..tokenizer import text_ids
from .states_file import StatesFile
from .unread import States, Unread

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
    folder : Path or None
        Of a bank, where states may lie that were computed before, see `dynarule.plus.states_file`.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, most: int = MOST_RULES, folder: Path | None = None
    ) -> None:
        self.model, self.tokenizer, self.most = model, tokenizer, most
        self._file = StatesFile(folder, model)
        self._decoder: Any = model.get_decoder()  # type: ignore[operator]
        self._layers = first_layers(self._decoder, len(self._decoder.layers))
        self._kept: OrderedDict[str, States] = OrderedDict()
        config = self._decoder.config
        full = {*(getattr(config, "layer_types", None) or ())} == {"full_attention"}
        self._whole = full or getattr(config, "sliding_window", None) is None  # a window masks by itself

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, texts: Sequence[str]) -> list[States]:
        """Return the states of rules, computing those that are not at hand in one forward."""
        new = [text for text in dict.fromkeys(texts) if self._at_hand(text) is None]
        left = self.unread(new[0]) if len(new) == 1 else None
        made = self._read(new) if left is None else [self._read_on(left)]
        return self._keep(dict(zip(new, made, strict=True)), texts)

    def _keep(self, made: dict[str, States], texts: Sequence[str]) -> list[States]:
        self._kept.update(made)
        for text in texts:
            self._kept.move_to_end(text)
        states = [self._kept[text] for text in texts]
        kept = sum(map(_lines, self._kept))
        while kept > self.most:
            kept -= _lines(self._kept.popitem(last=False)[0])
        return states

    def keep(self, text: str, states: States) -> None:
        """Keep what was read elsewhere."""
        self._keep({text: states}, [text])

    def unread(self, text: str, shift_T: Tensor | None = None) -> Unread | None:
        """Return what is left to read of rules that stand together; None if it is nothing, or a rule alone.

        ``shift_T`` is what is added to the scores of each token.
        """
        if text in self._kept or "\n" not in text or not self._whole:
            return None
        first, *others = text.split("\n")
        lead, ids = self.tokens(first)
        behind = [id for line in others for id in self.tokens(line)[1]]
        known = self._at_hand(first)
        if known is not None:
            known = self.placed(known[0], -len(behind)), known[1]
        return Unread(text, lead, ids + behind, known, shift_T)

    def _at_hand(self, text: str) -> States | None:
        """Return states that are kept, or lie in the bank's folder."""
        if text not in self._kept and len(self._file) and "\n" not in text:
            lead, ids = self.tokens(text)
            found = self._file.get(lead, ids, self._decoder.embed_tokens.weight)
            if found is not None:
                self._kept[text] = found
        return self._kept.get(text)

    def placed(self, key_LGTD: Tensor, by: int) -> Tensor:
        """Return keys at places ``by`` further on."""
        rotary, key = self._decoder.rotary_emb, key_LGTD.float()
        cos, sin = (
            part[0, 0] / rotary.attention_scaling
            for part in rotary(key, torch.full((1, 1), by, device=key.device))
        )
        left, right = key.chunk(2, -1)
        return (key * cos + torch.cat([-right, left], -1) * sin).to(key_LGTD)

    def tokens(self, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens with which every text opens, and those of a rule's line."""
        # A rule may spell a control token, and says no more than its letters by it.
        opened, ids = (text_ids(self.tokenizer, f"{text}\n", special) for special in (True, False))
        return next((opened[:n] for n in range(len(opened)) if opened[n] == ids[0]), []), ids

    @torch.no_grad()
    def _read(self, texts: list[str]) -> list[States]:
        if not texts:
            return []
        from transformers import DynamicCache

        lead, _ = self.tokens(texts[0])
        rows = [torch.tensor(lead + self.tokens(text)[1]) for text in texts]
        lengths_B1 = torch.tensor([[len(row)] for row in rows])
        ids_BT = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        places_T = torch.arange(ids_BT.shape[1])
        cache = DynamicCache()
        self._forward(ids_BT, (places_T < lengths_B1).long(), places_T - lengths_B1, cache)
        key, value = (
            torch.stack([getattr(layer, side) for layer in cache.layers]) for side in ("keys", "values")
        )
        places = [(at, slice(len(lead), len(row))) for at, row in enumerate(rows)]
        return [(key[:, at, :, of].clone(), value[:, at, :, of].clone()) for at, of in places]

    @torch.no_grad()
    def _read_on(self, left: Unread) -> States:
        from transformers import DynamicCache

        cache, weight = DynamicCache(), self._decoder.embed_tokens.weight
        left.add_to(cache)
        mask_RS = additive(left.seen_RS, weight.dtype)
        self._forward(left.new_R[None], mask_RS[None, None], left.place_R[None], cache)
        return left.take_from(cache, 0)

    def _forward(self, ids_BT: Tensor, mask: Tensor, place_BT: Tensor, cache: Any) -> None:
        device = self._decoder.embed_tokens.weight.device
        self._layers.config._attn_implementation = self._decoder.config._attn_implementation
        self._layers(
            input_ids=ids_BT.to(device),
            attention_mask=mask.to(device),
            position_ids=place_BT.to(device),
            past_key_values=cache,
            use_cache=True,
        )


def _lines(text: str) -> int:
    return text.count("\n") + 1
