"""Token memory: the kept rules are read token by token, as if each stood right before the prompt (beyond the paper).

A rule is what the frozen model itself makes of its text (`RuleStates`), to which the text's own queries attend. Every
rule is read alone, so one computation serves every place and question; with ``together``, rules that are found together
are read one after another, the best one first, as in a prompt.

Finding is the confidence layer's, but its queries come from the text alone: the layers below it run once more, without
rules, over all tokens since the last search. So what a ``<search>`` finds does not depend on what was read before.

The prompt's rules stay readable; those of a ``<search>`` are replaced by the next one's. With a look-ahead a search's
rules replace the prompt's too, and what is read is a plan, see `LookAhead.plan`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from ..attention import AttendedRules
from ..base_model import first_layers
from .memory import PlusMemory
from .reader import SearchContext, SearchInput
from .rule_states import RuleStates, States, Unread, open_cache

WeightedText = tuple[str, float | Tensor]
"""A rule's text, and how much less its tokens, or each of them, are attended to than the best one's (0 or less)."""


@dataclass(frozen=True)
class _Joined:
    """Sets of rules side by side."""

    key_NBHRD: Tensor  # by layer
    value_NBHRD: Tensor
    real_BR: Tensor  # what is no padding
    sizes: list[int]  # tokens of each set; their sum is R
    shift_BR: Tensor | None  # what is added to the scores of each token; None: nothing

    @property
    def visible_BTR(self) -> Tensor | None:
        """What any token sees of all sets; None: all."""
        return None if bool(self.real_BR.all()) else self.real_BR[:, None]


class TokenMemory(PlusMemory):
    """A `PlusMemory` whose rules are read token by token in every layer; only the confidence layer's adapter is used.

    Parameters
    ----------
    *args, tokenizer, **settings
        As for `RuleMemory`.
    states : RuleStates or None
        Of the same model; may be shared by memories that follow each other. None: its own, for which it needs the
        tokenizer.
    """

    def __init__(
        self, *args: Any, tokenizer: Any = None, states: RuleStates | None = None, **settings: Any
    ) -> None:
        tokenizer = tokenizer if states is None else states.tokenizer
        super().__init__(*args, tokenizer=tokenizer, **settings)
        layer = self.config.confidence_layer
        assert layer is not None  # the configuration says so
        self.layer = layer
        self.states = states or RuleStates(self.adapter.model, tokenizer)
        self._decoder = self.adapter.model.get_decoder()
        self._below = first_layers(self._decoder, layer)
        self._unread: list[tuple[Tensor, Tensor]] = []  # ids and positions of tokens since the last search
        self._prompt: list[list[WeightedText]] = []
        self._latest: list[list[WeightedText]] = []
        self._ahead: _Joined | None = None  # what a token sees from now on
        self._now: tuple[_Joined | None, Tensor | None] = None, None
        self._left: Unread | None = None  # rules that this forward reads besides its own tokens

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, and find the rules that each of them reads."""
        super().begin(input_ids, attention_mask, past_length)
        self.positions_BT: Tensor | None
        # No rules while the text alone, and rules by themselves, are read through the same layers.
        self._now, self.positions_BT, self._left = (None, None), None, None
        if not self._projections:
            return
        rows, tokens = input_ids.shape
        real_BS = input_ids.new_ones(rows, past_length + tokens)
        if attention_mask is not None and attention_mask.ndim == 2:
            real_BS = attention_mask[:, -real_BS.shape[1] :].to(real_BS)
        # A rule ends right before a row's first token, wherever its padding does.
        self.positions_BT = (real_BS.cumsum(-1) - 1).clamp_min(0)[:, past_length:]
        if past_length == 0:
            self._cache, self._unread = DynamicCache(), []
            self._latest = [[] for _ in range(rows)]
        self._unread.append((input_ids, self.positions_BT))
        if past_length == 0 or self._searches:
            self._now = self._look(real_BS, tokens)
        elif self._ahead is not None:
            self._now = self._ahead, self._ahead.visible_BTR

    def inputs(self) -> dict[str, Any]:
        """Return what the decoder gets: rules that are new to it stand in front of its tokens."""
        given, left, weight = super().inputs(), self._left, self._decoder.embed_tokens.weight
        if self.positions_BT is not None:
            given["position_ids"] = self.positions_BT
        if left is None:
            return given
        return left.in_front_of(given, self._real_BS[0].bool(), weight.dtype)

    def end(self, output: Any) -> Any:
        """Take the rules that were read in front of the text out of what the decoder returns, and of its cache."""
        cache, left, self._left = self.given.get("past_key_values"), self._left, None
        super().end(output)
        if left is None:
            return None
        states = left.take_from(cache, self._real_BS.shape[1] - self._search_BT.shape[1])
        self.states.keep({left.text: states}, [left.text])
        self._ahead = self._join([self._prompt, self._latest], {left.text: states})
        output.last_hidden_state = output.last_hidden_state[:, len(left) :]
        return output

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        """Return the tokens that a layer reads besides the text."""
        joined, visible_BTR = self._now
        if joined is None or not self._projections:
            return None
        shift = 0.0 if joined.shift_BR is None else joined.shift_BR[:, None, None].to(hidden_BTC.dtype)
        return AttendedRules(None, joined.key_NBHRD[layer], joined.value_NBHRD[layer], visible_BTR, shift)

    @torch.no_grad()
    def _look(self, real_BS: Tensor, tokens: int) -> tuple[_Joined | None, Tensor | None]:
        """Find rules for the prompt and every ``<search>`` of this forward; return what its tokens see."""
        self._read_text(real_BS)
        if self._question_BT is not None:
            self._prompt = self._weighted_texts(None, 0)
            if self.config.lookahead:  # a search sees its way to the end, and needs nothing of the prompt's
                self._latest, self._prompt = self._prompt, [[] for _ in self._prompt]
        sets, owners = [self._prompt, self._latest], [-1, 0]
        for number, has_B, _ in self._each_search() if self.layer in self._updated else ():
            sets.append(self._weighted_texts(has_B, number))
            owners.append(number)
            pairs = zip(sets[-1], self._latest, has_B.tolist(), strict=True)
            self._latest = [new if has else old for new, old, has in pairs]
        self._real_BS, self._left = real_BS, self._read_on_the_way(tokens)
        if self._left is not None:
            return None, None
        self._ahead = self._join([self._prompt, self._latest])
        now = self._ahead if tokens == 1 else self._join(sets)
        if now is None or tokens == 1:
            return now, None if now is None else now.visible_BTR
        segment_BT = self._search_BT.cumsum(-1)
        owner_R = torch.repeat_interleave(torch.tensor(owners), torch.tensor(now.sizes)).to(segment_BT.device)
        own_BTR = (owner_R < 0) | (segment_BT[:, :, None] == owner_R)
        return now, own_BTR & now.real_BR[:, None]

    def _read_on_the_way(self, tokens: int) -> Unread | None:
        """Return the rules that the model may read in one forward with its tokens, where these see them and no other.

        A forward of thirty tokens takes a CPU less than twice the time of one, so two forwards are too many.
        """
        rows = [set_B[0] for set_B in (self._prompt, self._latest) if set_B[0]]
        one = self.config.together and len(self._prompt) == len(rows) == 1
        if not one or (tokens > 1 and self._searches) or not open_cache(self.given):
            return None
        ((text, shift_T),) = self._one_text(rows[0])
        return self.states.unread(text, torch.as_tensor(shift_T) if self.config.score_weight else None)

    def _read_text(self, real_BS: Tensor) -> None:
        """Read the text alone up to the confidence layer, and note what the searches of this forward know."""
        ids_BT, positions_BT = (torch.cat(parts, 1) for parts in zip(*self._unread, strict=True))
        self._unread = []
        self._below.config._attn_implementation = self._decoder.config._attn_implementation
        hidden_BTC = self._below(
            input_ids=ids_BT,
            attention_mask=real_BS,
            position_ids=positions_BT,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        length = hidden_BTC.shape[1]
        search_BT = nn.functional.pad(self._search_BT, (length - self._search_BT.shape[1], 0))
        real_BT = real_BS[:, -length:].bool()
        self._inputs = self._context.read(hidden_BTC, search_BT, real_BT, self._question_BT)
        ahead = self.config.lookahead and self.search_token_id is not None
        if self._question_BT is not None and ahead:
            self._inputs[0] = self._behind_question(hidden_BTC, real_BS, positions_BT)

    def _behind_question(self, hidden_BTC: Tensor, real_BS: Tensor, positions_BT: Tensor) -> SearchInput:
        """Return what a ``<search>`` right behind the question would ask; the cache stays as it is."""
        question_BT = self._question_BT
        assert question_BT is not None and self.search_token_id is not None
        length = question_BT.shape[1]
        places_T = torch.arange(length, device=question_BT.device)
        last_B = torch.where(question_BT, places_T, 0).amax(-1)
        token_B1C, layers = torch.empty_like(hidden_BTC[:, :1]), self._cache.layers  # type: Tensor, Any
        # One place in generation; a sliding window counts from where a row ends.
        for last in last_B.unique().tolist():
            rows = (last_B == last).nonzero()[:, 0]
            cache = DynamicCache()
            for number, layer in enumerate(layers):
                cache.update(layer.keys[rows, :, : last + 1], layer.values[rows, :, : last + 1], number)
            token_B1C[rows] = self._below(
                input_ids=rows.new_full((len(rows), 1), self.search_token_id),
                attention_mask=nn.functional.pad(real_BS[rows, : last + 1], (0, 1), value=1),
                position_ids=positions_BT[rows, last : last + 1] + 1,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        token_BT = nn.functional.pad(torch.zeros_like(question_BT), (0, 1), value=True)
        until_BT = nn.functional.pad(real_BS.bool() & (places_T <= last_B[:, None]), (0, 1), value=True)
        return SearchContext().read(
            torch.cat([hidden_BTC, token_B1C], 1), token_BT, until_BT, nn.functional.pad(question_BT, (0, 1))
        )[1]

    def _weighted_texts(self, has_B: Tensor | None, number: int) -> list[list[WeightedText]]:
        """Return the rules that each row that searches reads; none for the others."""
        if not len(self.bank):
            return [[] for _ in self._steps_B]
        self._find(self.layer, None, has_B, number)
        results = [self._results.get(row) for row in range(len(self._steps_B))]
        weights_B = [self._weights(result) if result else {} for result in results]
        return [[(self.bank.texts[at], weight) for at, weight in row.items()] for row in weights_B]

    def _join(
        self, sets: Sequence[Sequence[Sequence[WeightedText]]], known: dict[str, States] | None = None
    ) -> _Joined | None:
        """Put each set's tokens side by side, padded over the rows; None if there are none."""
        if self.config.together:
            sets = [[self._one_text(row) for row in rows] for rows in sets]
        texts = list(dict.fromkeys(text for rows in sets for row in rows for text, _ in row))
        if not texts:
            return None
        known = known or dict(zip(texts, self.states(texts), strict=True))
        like = next(iter(known.values()))[0]
        sizes = [max(sum(known[text][0].shape[2] for text, _ in row) for row in rows) for rows in sets]
        batch, (layers, groups, _, head_dim) = len(sets[0]), like.shape
        key, value = (like.new_zeros(layers, batch, groups, sum(sizes), head_dim) for _ in range(2))
        real_BR = torch.zeros(batch, sum(sizes), dtype=torch.bool, device=like.device)
        shift_BR = torch.zeros(batch, sum(sizes), device=like.device) if self.config.score_weight else None
        for block, rows in enumerate(sets):
            for at, row in enumerate(rows):
                stop = sum(sizes[:block])
                for text, shift in row:
                    start, stop = stop, stop + known[text][0].shape[2]
                    real_BR[at, start:stop] = True
                    for side, states_of_text in zip((key, value), known[text], strict=True):
                        side[:, at, :, start:stop] = states_of_text
                    if shift_BR is not None:
                        shift_BR[at, start:stop] = torch.as_tensor(shift)
        return _Joined(key, value, real_BR, sizes, shift_BR)

    def _one_text(self, row: Sequence[WeightedText]) -> list[WeightedText]:
        """Return a set's rules as one text, the best one first, and what is added to the scores of its tokens."""
        if not row:
            return []
        texts, shifts = zip(*row, strict=True)
        lengths = torch.tensor([len(self.states.tokens(text)[1]) for text in texts])
        return [("\n".join(texts), torch.tensor(shifts).repeat_interleave(lengths))]
