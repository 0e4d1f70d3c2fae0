"""What a search knows of the text before it, and how it reads that text (beyond the paper)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

QUESTION, EARLIER, SINCE, TOKEN = range(4)
"""Kinds of tokens that a search sees: the question's, those of earlier steps, of the last step, and its own."""
KEY_WIDTH = 32
PLACE_WIDTH = 128
PLACE_SCALE = 0.25


class SearchInput(NamedTuple):
    """The text before a search, as the confidence layer reads it."""

    states_BTC: Tensor  # of the tokens, fp32
    kind_BT: Tensor  # QUESTION, EARLIER, SINCE or TOKEN; -1 for padding and what comes after the search
    token_BC: Tensor  # the state of the search's own token; at the prompt, of the question's last one


class SearchReader(nn.Module):
    """Attention of a search's token over the text before it, by itself, to what it asks a bank.

    In the paper a search asks with its own token's state alone, which a base's first layers need not have moved into
    it, and the prompt with the mean of its tokens, which forgets what stood where. Heads tell apart ``offsets`` tokens
    to each side of where the last step is in the question (0: they read by content alone): that step is looked up, by
    what both say, since a base that was not pretrained on such questions has no state that says which of several cases
    comes next (location-aware attention; before the first step, from the start). They tell apart ``tail`` tokens back
    from the end of the question, and of the last step: questions end with what they ask, and steps with what follows.
    """

    def __init__(self, hidden: int, out: int, heads: int, offsets: int = 0, tail: int = 0) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, heads * KEY_WIDTH)
        self.key = nn.Parameter(torch.empty(heads, KEY_WIDTH, hidden))
        self.kind = nn.Parameter(torch.zeros(heads, TOKEN + 1))
        self.out = nn.Linear((heads + 1) * hidden, out)
        self.place = nn.Linear(hidden, PLACE_WIDTH) if offsets else None
        self.offset = nn.Parameter(torch.zeros(2, heads, 2 * offsets + 1)) if offsets else None
        self.tail = nn.Parameter(torch.zeros(2, heads, tail + 1)) if tail else None
        nn.init.normal_(self.key, std=0.05)
        if self.place is not None:
            # A random projection keeps who resembles whom, so it is a look-up from the start.
            nn.init.normal_(self.place.weight, std=1 / math.sqrt(PLACE_WIDTH))
            nn.init.zeros_(self.place.bias)
        for linear in (self.query, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, known: SearchInput) -> Tensor:
        """Return what each search asks, fp32 (B, out)."""
        states_BTC, kind_BT, token_BC = known
        query_BF = nn.functional.linear(token_BC, self.query.weight.float(), self.query.bias.float())
        query_BHD = query_BF.unflatten(-1, (-1, KEY_WIDTH))
        # Keys of the text are never computed: the one query moves into the space of states.
        inward_BHC = torch.einsum("bhd,hdc->bhc", query_BHD, self.key.float()) / math.sqrt(KEY_WIDTH)
        scores_BHT = torch.einsum("bhc,btc->bht", inward_BHC, states_BTC)
        scores_BHT = scores_BHT + self.kind.float().T[kind_BT.clamp_min(0)].transpose(1, 2)
        if self.place is not None:
            scores_BHT = scores_BHT + self._from_last(states_BTC, kind_BT)
        if self.tail is not None:
            for kind, tail_HE in zip((QUESTION, SINCE), self.tail.float(), strict=True):
                here_BT = kind_BT == kind  # E: tokens behind it of the same kind
                behind_BT = here_BT.flip(-1).cumsum(-1).flip(-1).sub(1).clamp(0, tail_HE.shape[-1] - 1)
                scores_BHT = scores_BHT + (tail_HE[:, behind_BT] * here_BT).transpose(0, 1)
        weights_BHT = scores_BHT.masked_fill((kind_BT < 0)[:, None], -torch.inf).softmax(-1)
        read_BHC = torch.einsum("bht,btc->bhc", weights_BHT, states_BTC)
        read = torch.cat([read_BHC.flatten(1), token_BC], -1)
        return nn.functional.linear(read, self.out.weight.float(), self.out.bias.float())

    def _from_last(self, states_BTC: Tensor, kind_BT: Tensor) -> Tensor:
        """Return what the place of the last step adds to each head's scores of the question's tokens: (B, H, T)."""
        assert self.place is not None and self.offset is not None
        question_BT, since_BT = kind_BT == QUESTION, (kind_BT == SINCE).to(states_BTC)
        length_B1 = since_BT.sum(-1, keepdim=True)  # of the last step
        last_BC = torch.einsum("bt,btc->bc", since_BT, states_BTC) / length_B1.clamp_min(1)
        weight, bias = self.place.weight.float(), self.place.bias.float()
        key_BD = nn.functional.linear(last_BC, weight, bias)
        inward_BC, constant_B1 = key_BD @ weight, (key_BD @ bias)[:, None]
        match_BT = PLACE_SCALE * (torch.einsum("bc,btc->bt", inward_BC, states_BTC) + constant_B1)
        first_BT = nn.functional.one_hot(question_BT.int().argmax(-1), question_BT.shape[1]).to(match_BT)
        there_BT = match_BT.masked_fill(~question_BT, -1e9).softmax(-1)
        there_BT = torch.where(length_B1 > 0, there_BT, first_BT)
        # exp of the offsets' biases, summed over where the last step may be; beyond the last offset all is alike.
        tokens, reach = there_BT.shape[1], self.offset.shape[-1] // 2
        place_T = torch.arange(tokens, device=there_BT.device)
        apart_TT = (place_T - place_T[:, None]).clamp(-reach, reach) + reach  # from, to
        moved_WBHT = torch.einsum("bs,whst->wbht", there_BT, self.offset.float().exp()[:, :, apart_TT])
        moved_BHT = torch.where(length_B1[:, :, None] > 0, moved_WBHT[1], moved_WBHT[0])
        return torch.where(question_BT[:, None], moved_BHT.clamp_min(1e-6).log(), 0.0)


class SearchContext:
    """Keeps what the confidence layer read, from the prompt on: token by token or a whole sequence at once."""

    def __init__(self) -> None:
        self._states: list[Tensor] = []
        self._marks: list[Tensor] = []

    def read(
        self, hidden_BTC: Tensor, search_BT: Tensor, real_BT: Tensor, question_BT: Tensor | None
    ) -> list[SearchInput]:
        """Take note of a forward's states; return what is known at the prompt (0) and at its n-th ``<search>``.

        ``hidden_BTC`` are inputs of the confidence layer's attention, ``real_BT`` tokens that are no padding,
        ``question_BT`` the question's in the forward that reads a prompt, else None. What is returned of rows with
        fewer searches, or of the prompt where the forward reads none, means nothing.
        """
        if question_BT is not None:
            self._states, self._marks = [], []
        question_BT = torch.zeros_like(search_BT) if question_BT is None else question_BT
        self._states.append(hidden_BTC.float())
        self._marks.append(torch.stack([search_BT, real_BT, question_BT]))
        searches = int(search_BT.sum(-1).max()) if search_BT.numel() else 0
        if not searches and not bool(question_BT.any()):
            return []
        states_BTC = torch.cat(self._states, 1)
        search_BT, real_BT, question_BT = torch.cat(self._marks, -1)
        self._states, self._marks = [states_BTC], [torch.stack([search_BT, real_BT, question_BT])]
        rows = torch.arange(len(states_BTC), device=states_BTC.device)
        place_T = torch.arange(states_BTC.shape[1], device=states_BTC.device)
        segment_BT = search_BT.cumsum(-1)
        # searches of earlier forwards
        earlier_B = segment_BT[:, -1] - search_BT[:, -hidden_BTC.shape[1] :].sum(-1)
        inputs = []
        for number in range(searches + 1):
            here_BT = search_BT & (segment_BT == (earlier_B + number)[:, None]) if number else question_BT
            at_B = torch.where(here_BT, place_T, 0).amax(-1)
            kind_BT = token_kinds(question_BT, search_BT, real_BT, at_B)
            inputs.append(SearchInput(states_BTC, kind_BT, states_BTC[rows, at_B]))
        return inputs


def token_kinds(question_BT: Tensor, search_BT: Tensor, real_BT: Tensor, at_B: Tensor) -> Tensor:
    """Return what a search at the places ``at_B`` sees of each token (B, T), see `SearchInput`."""
    at_B1 = at_B[:, None]
    segment_BT = search_BT.cumsum(-1)
    since_BT = (segment_BT == segment_BT.gather(1, at_B1) - 1) & ~search_BT
    kind_BT = torch.where(question_BT, QUESTION, torch.where(since_BT, SINCE, EARLIER))
    after_BT = torch.arange(search_BT.shape[1], device=at_B.device) > at_B1
    return kind_BT.masked_fill(after_BT | ~real_BT, -1).scatter(1, at_B1, TOKEN)
