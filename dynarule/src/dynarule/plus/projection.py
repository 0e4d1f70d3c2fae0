"""The projections of a layer that searches as DynaRule+ does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ..projection import RuleProjection
from .lookahead import LookAhead
from .reader import SearchReader

if TYPE_CHECKING:
    from .config import PlusConfig


class PlusProjection(RuleProjection):
    """W~_K of the confidence layer with what reads the text for a search, and W~_Q and W~_V where they are used.

    Rules that are read as tokens have no values, and where the text is read by `SearchReader`, no queries.

    Attributes
    ----------
    reader : SearchReader or None
        What a search asks; None: the paper's query.
    lookahead : LookAhead or None
        Its backward levels.
    """

    def __init__(self, attention: nn.Module, config: PlusConfig) -> None:
        super().__init__(attention, config.encoder_dim)
        hidden, width = self.q.in_features, self.q.out_features
        sizes = config.search_heads, config.search_offsets, config.search_tail
        reads, plans = config.search_heads > 0, config.lookahead > 0
        self.reader = SearchReader(hidden, width, *sizes) if reads else None
        self.lookahead = LookAhead(hidden, config.encoder_dim, *sizes) if plans else None
        if config.reading == "tokens":
            del self.v
            if reads:
                del self.q
        self.to(self.k.weight)
