"""The settings of DynaRule+: how a search reads the text and looks ahead, and how what it finds is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from Stemmer import algorithms
from torch import nn

from ..base_model import LARGEST, check_fields
from ..config import MAY_BE_ZERO, DynaRuleConfig
from ..projection import RuleProjection
from .lookahead import LookAhead
from .reader import SearchReader

if TYPE_CHECKING:
    from ..memory.serving import RuleMemory

Reading = Literal["vector", "tokens"]


@dataclass
class PlusConfig(DynaRuleConfig):
    """A `DynaRuleConfig` with what goes beyond the paper: at the confidence layer, heads that read the text search."""

    reading: Reading = "vector"  # what is read of a kept rule: one value, or its tokens' own states
    score_limit: float | None = None  # most that it takes; None: any amount
    together: bool = False  # rules found together are read as one text, as in a prompt
    word_weight: float = 0.0  # of words that text and rules share, in what a search finds; 0: none
    word_stemmer: str = ""  # of Snowball (english, say): goes by words' stems, not letters; "": as written
    search_heads: int = 4  # heads that read the text for a search, where the paper asks with its token alone
    search_offsets: int = 0  # tokens told apart around the last step's place in the question
    search_tail: int = 0  # tokens at the end of question and last step that a search tells apart
    lookahead: int = 0  # backward levels from what is asked; 0: none
    lookahead_width: int = 16  # rules that a backward level goes on from

    def validate(self) -> None:
        """Raise ValueError that names the first setting that cannot be."""
        super().validate()
        check_fields(self, MAY_BE_ZERO, LARGEST, PlusConfig.__annotations__)
        if self.word_stemmer not in ("", *algorithms()):
            raise ValueError(f"word_stemmer must be one of {algorithms()}, got {self.word_stemmer!r:.60}")
        if self.confidence_layer is None:
            raise ValueError(
                "search_heads read at the confidence layer; measure it (dynarule.measure_confidence), or set "
                "confidence_layer"
            )
        if self.together and self.reading != "tokens":
            raise ValueError('together is for rules that are read as tokens; set reading to "tokens"')

    def make_projection(self, block: nn.Module) -> nn.Module:
        """Return what stands beside an attention block: of rules' tokens, only the confidence layer's is needed."""
        layer = cast(Any, block).layer_idx
        if layer == self.confidence_layer:
            return PlusProjection(block, self)
        if self.reading == "tokens":
            return nn.Module()
        return super().make_projection(block)

    def memory_class(self) -> type[RuleMemory]:
        """Return what reads rules with such an adapter."""
        from .memory import PlusMemory
        from .token_memory import TokenMemory

        return TokenMemory if self.reading == "tokens" else PlusMemory

    @property
    def question_opening(self) -> str:
        """A line end: rules read as tokens stand before the question, one a line; one search serves both readings."""
        return "\n"


class PlusProjection(RuleProjection):
    """W~_K of the confidence layer with what reads the text for a search, and W~_Q and W~_V where they are used."""

    def __init__(self, attention: nn.Module, config: PlusConfig) -> None:
        super().__init__(attention, config.encoder_dim)
        hidden, width = self.q.in_features, self.q.out_features
        sizes = config.search_heads, config.search_offsets, config.search_tail
        self.reader = SearchReader(hidden, width, *sizes)
        self.lookahead = LookAhead(hidden, config.encoder_dim, *sizes) if config.lookahead else None
        if config.reading == "tokens":
            del self.q, self.v
        self.to(self.k.weight)

    def trained_to_read(self) -> Iterator[nn.Parameter]:
        """Yield what training through the model moves; a finder is trained by itself, and stays as it is."""
        return (value for name, value in self.named_parameters() if name.startswith(("q.", "v.")))
