"""The maps between what a search knows and a bank, in coordinates in which training goes quickly."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ..memory.lookahead import Asked, LookAhead, SearchReader
from ..projection import RuleProjection, score_keys
from .optimizers import whitening
from .searches import Searches


class Finder(nn.Module):
    """What is trained of a projection, in coordinates in which states and embeddings vary alike in all directions."""

    def __init__(
        self, projection: RuleProjection, keys_MP: Tensor, values_MP: Tensor, searches: Searches
    ) -> None:
        super().__init__()
        some_NC = searches.states[:: max(1, len(searches.states) // 100_000)].float()
        self.mean_C, self.scale_C = some_NC.mean(0), some_NC.std(0) + 1e-6
        self.white_keys_PP, self.white_values_PP = (
            whitening(table_MP) * math.sqrt(table_MP.shape[1]) for table_MP in (keys_MP, values_MP)
        )
        self.keys_MP, self.values_MP = keys_MP @ self.white_keys_PP, values_MP @ self.white_values_PP
        self.projection = copy.deepcopy(projection).float()
        del self.projection.q, self.projection.v  # of reading
        self.heads = projection.k.out_features // projection.head_dim
        nn.init.normal_(self.projection.k.weight, std=1 / math.sqrt(keys_MP.shape[1]))
        if self.ahead is not None:
            nn.init.normal_(self.ahead.goal.out.weight, std=0.005)
            nn.init.normal_(self.ahead.link.weight, std=0.005)
            nn.init.zeros_(self.ahead.link.bias)
            with torch.no_grad():
                self.ahead.link.bias[-1] = -6.0  # of random rules, next to none follow each other

    @property
    def ahead(self) -> LookAhead | None:
        """The look-ahead, if there is one."""
        return self.projection.lookahead

    def white(self, asked: Asked) -> Asked:
        """Return what searches know, standardised."""
        mean_C, scale_C = self.mean_C.to(asked.token_BC.device), self.scale_C.to(asked.token_BC.device)
        states_BTC, token_BC = ((each - mean_C) / scale_C for each in (asked.states_BTC, asked.token_BC))
        return Asked(states_BTC, asked.kind_BT, token_BC)

    def scores(self, asked: Asked, keys_MP: Tensor) -> Tensor:
        """Return equation 4's scores of standardised searches: (B, M)."""
        assert self.projection.reader is not None
        query_BHD = self.projection.reader(asked).unflatten(-1, (self.heads, -1))
        return score_keys(query_BHD[:, None], self.projection.keys(keys_MP)[None])[:, 0]

    @torch.no_grad()
    def fold_into(self, projection: RuleProjection) -> None:
        """Write the same maps for raw states and embeddings into a projection; exact."""
        mine = self.projection
        keys_PP, values_PP = self.white_keys_PP, self.white_values_PP
        pairs: list[tuple[SearchReader | None, SearchReader | None, Tensor | None]]
        pairs = [(mine.reader, projection.reader, None)]
        if self.ahead is not None and projection.lookahead is not None:
            pairs.append((self.ahead.goal, projection.lookahead.goal, values_PP))
        for reader, to, white_PP in pairs:
            assert reader is not None and to is not None
            shift_C = self.mean_C / self.scale_C
            to.query.weight.copy_(reader.query.weight / self.scale_C)
            to.query.bias.copy_(reader.query.bias - reader.query.weight @ shift_C)
            to.key.copy_(reader.key / self.scale_C)
            to.kind.copy_(reader.kind)
            blocks = reader.out.in_features // len(self.scale_C)
            weight = reader.out.weight / self.scale_C.repeat(blocks)
            bias = reader.out.bias - reader.out.weight @ shift_C.repeat(blocks)
            to.out.weight.copy_(weight if white_PP is None else white_PP @ weight)
            to.out.bias.copy_(bias if white_PP is None else white_PP @ bias)
        projection.k.weight.copy_(mine.k.weight @ keys_PP)
        projection.k.bias.copy_(mine.k.bias)
        if self.ahead is not None:
            assert projection.lookahead is not None
            wide_EE = torch.block_diag(keys_PP, torch.ones(1, 1))
            projection.lookahead.link.weight.copy_(wide_EE @ self.ahead.link.weight @ values_PP)
            projection.lookahead.link.bias.copy_(wide_EE @ self.ahead.link.bias)
            projection.lookahead.weight.copy_(self.ahead.weight)
