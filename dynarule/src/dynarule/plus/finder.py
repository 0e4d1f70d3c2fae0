"""The maps between what a search knows and a bank, in coordinates in which training goes quickly."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from ..projection import RuleProjection, score_keys
from ..training.optimizers import whitening
from .lookahead import LookAhead
from .reader import SearchInput, SearchReader
from .searches import Searches

SAMPLE = 256
"""Searches, and rules, by which the spread of first scores is set."""


class ScaledPrior(nn.Module):
    """A parametrization: a trained matrix plus a fixed one for each block of columns, times a trained multiple."""

    def __init__(self, prior_FC: Tensor, blocks: int) -> None:
        super().__init__()
        self.multiple = nn.Parameter(torch.full((blocks,), 1 / blocks))
        self.prior_FC: Tensor
        self.register_buffer("prior_FC", prior_FC)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sum; columns to the right of the blocks have no fixed part."""
        prior = torch.cat([multiple * self.prior_FC for multiple in self.multiple], -1)
        return weight + nn.functional.pad(prior, (0, weight.shape[1] - prior.shape[1]))


class Finder(nn.Module):
    """What is trained of a projection, in coordinates in which states and embeddings vary alike in all directions."""

    def __init__(
        self, projection: RuleProjection, keys_MP: Tensor, values_MP: Tensor, searches: Searches
    ) -> None:
        super().__init__()
        some_NC = searches.states[:: max(1, len(searches.states) // 100_000)].float().to(keys_MP.device)
        self.mean_C, self.common_C = some_NC.mean(0), torch.zeros_like(some_NC[0])
        self.white_keys_PP, self.white_values_PP = (
            whitening(table_MP) * math.sqrt(table_MP.shape[1]) for table_MP in (keys_MP, values_MP)
        )
        self.keys_MP, self.values_MP = keys_MP @ self.white_keys_PP, values_MP @ self.white_values_PP
        self.projection = copy.deepcopy(projection).float().requires_grad_(True)
        if hasattr(self.projection, "v"):
            del self.projection.v  # of reading
        if self.reader is not None:
            if hasattr(self.projection, "q"):
                del self.projection.q  # so is this, where a reader asks
        else:
            nn.init.normal_(self.projection.q.weight, std=1 / math.sqrt(len(self.mean_C)))
            if self.projection.q.bias is None:
                # No shift of states can be folded into it, and what they share would drown the rest: it is left out.
                self.mean_C, self.common_C = self.common_C, nn.functional.normalize(self.mean_C, dim=0)
        self.scale_C = self._alone(some_NC - self.mean_C).std(0) + 1e-6
        self.heads = projection.k.out_features // projection.head_dim
        nn.init.normal_(self.projection.k.weight, std=1 / math.sqrt(keys_MP.shape[1]))
        if self.ahead is not None:
            nn.init.normal_(self.ahead.goal.out.weight, std=0.005)
            nn.init.normal_(self.ahead.link.weight, std=0.005)
            nn.init.zeros_(self.ahead.link.bias)
            with torch.no_grad():
                self.ahead.link.bias[-1] = -6.0  # of random rules, next to none follow each other

    @torch.no_grad()
    def look_up(self, searches: Searches, temperature: float) -> None:
        """Start from maps that look for the text's own words; what is trained beside them learns the rest.

        Rules encoded by the layers that searches read are close to texts that say the same at once; random maps learn
        that word by word, and never for words of no training question. So each head looks for what it reads, times a
        multiple that is trained, and a conclusion is followed by premises of its words.
        """
        reader, ahead = self.reader, self.ahead
        if reader is None or len(self.scale_C) != len(self.white_keys_PP):
            raise ValueError(
                "look_up needs search_heads and rules that are encoded by layers of the model itself "
                f"(width {len(self.scale_C)}, the bank has {len(self.white_keys_PP)}); set look_up = false"
            )
        known = self.white(searches.inputs(range(min(SAMPLE, len(searches.items))), self.keys_MP.device))
        every = len(self.keys_MP) // SAMPLE + 1
        keys_NP, values_NP = self.keys_MP[::every], self.values_MP[::every]
        nn.init.orthogonal_(self.projection.k.weight)
        self.projection.k.requires_grad_(False)
        keys_FC = self.projection.k.weight @ self.white_keys_PP * self.scale_C
        _start_from(reader, keys_FC, lambda: self.scores(known, keys_NP), 2 * temperature)
        if ahead is not None:
            goal, link = ahead.goal, ahead.link
            values_PC = self.white_values_PP * self.scale_C
            _start_from(goal, values_PC, lambda: goal(known) @ values_NP.T, 2.0)
            same_PP = self.white_keys_PP @ torch.linalg.inv(self.white_values_PP)
            nn.init.zeros_(link.weight)
            same_EP = nn.functional.pad(same_PP * (-link.bias[-1] / len(same_PP)), (0, 0, 0, 1))
            register_parametrization(link, "weight", ScaledPrior(same_EP, 1))

    @property
    def ahead(self) -> LookAhead | None:
        """The look-ahead, if there is one."""
        return getattr(self.projection, "lookahead", None)

    @property
    def reader(self) -> SearchReader | None:
        """What reads the text; None: the paper's query."""
        return getattr(self.projection, "reader", None)

    def white(self, known: SearchInput) -> SearchInput:
        """Return what searches know, standardised."""
        states_BTC, token_BC = (
            self._alone(states - self.mean_C) / self.scale_C for states in (known.states_BTC, known.token_BC)
        )
        return SearchInput(states_BTC, known.kind_BT, token_BC)

    def _alone(self, states_C: Tensor) -> Tensor:
        """Return states (or rows of a map) without the direction that all states share."""
        return states_C - (states_C @ self.common_C)[..., None] * self.common_C

    def scores(self, known: SearchInput, keys_MP: Tensor) -> Tensor:
        """Return equation 4's scores of standardised searches: (B, M)."""
        reader = self.reader
        query_BF = self.projection.q(known.token_BC) if reader is None else reader(known)
        query_BHD = query_BF.unflatten(-1, (self.heads, -1))
        return score_keys(query_BHD[:, None], self.projection.keys(keys_MP)[None])[:, 0]

    @torch.no_grad()
    def fold_into(self, projection: Any) -> None:
        """Write the same maps for raw states and embeddings into a projection; exact."""
        mine = self.projection
        if self.reader is None:
            self._fold_linear(mine.q, projection.q)
        else:
            self._fold_reader(self.reader, projection.reader)
        projection.k.weight.copy_(mine.k.weight @ self.white_keys_PP)
        projection.k.bias.copy_(mine.k.bias)
        if self.ahead is not None:
            ahead: Any = projection.lookahead
            self._fold_reader(self.ahead.goal, ahead.goal, self.white_values_PP)
            wide_EE = torch.block_diag(self.white_keys_PP, self.white_keys_PP.new_ones(1, 1))
            ahead.link.weight.copy_(wide_EE @ self.ahead.link.weight @ self.white_values_PP)
            ahead.link.bias.copy_(wide_EE @ self.ahead.link.bias)
            ahead.weight.copy_(self.ahead.weight)

    def _fold_linear(self, mine: nn.Linear, to: nn.Linear, white_PP: Tensor | None = None) -> None:
        """Fold the standardisation of each block of C inputs, and maybe the whitening of outputs, into a map."""
        blocks = mine.in_features // len(self.scale_C)
        weight = mine.weight / self.scale_C.repeat(blocks)
        weight = self._alone(weight.unflatten(-1, (blocks, -1))).flatten(-2)
        to.weight.copy_(weight if white_PP is None else white_PP @ weight)
        if to.bias is not None:
            bias = mine.bias - mine.weight @ (self.mean_C / self.scale_C).repeat(blocks)
            to.bias.copy_(bias if white_PP is None else white_PP @ bias)

    def _fold_reader(self, mine: SearchReader, to: SearchReader, white_PP: Tensor | None = None) -> None:
        self._fold_linear(mine.query, to.query)
        self._fold_linear(mine.out, to.out, white_PP)
        to.key.copy_(mine.key / self.scale_C)
        to.kind.copy_(mine.kind)
        if mine.place is not None and to.place is not None:
            self._fold_linear(mine.place, to.place)
        for name in ("offset", "tail"):
            if getattr(mine, name) is not None:
                getattr(to, name).copy_(getattr(mine, name))


def _start_from(reader: SearchReader, prior_FC: Tensor, scores: Callable[[], Tensor], spread: float) -> None:
    """Let a reader's output start from a fixed map of what its heads read, scaled to a spread of first scores."""
    nn.init.zeros_(reader.out.weight)
    prior = ScaledPrior(prior_FC, reader.key.shape[0])
    register_parametrization(reader.out, "weight", prior)
    prior.prior_FC.mul_(spread / scores().std(-1).mean())
