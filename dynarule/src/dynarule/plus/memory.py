"""A rule memory whose searches read the text before them, go by words too, and look ahead."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention import AttendedRules
from ..bank.bank import version_of
from ..bank.rows import largest
from ..memory.serving import Retrieval, RuleMemory, real_tokens
from .config import PlusConfig, PlusProjection
from .lookahead import Tables, planned
from .reader import EARLIER, QUESTION, SINCE, TOKEN, SearchContext, SearchInput
from .words import SearchText, words_of

MIN_LEVEL_WEIGHT = 1e-3
"""Weight of backward levels up to which words count nothing in them."""
UNREAD = -1e4
"""Added to a score: the rule is not read."""


@dataclass(frozen=True)
class PlusRetrieval(Retrieval):
    """One search, for the trace."""

    # Ids of the rules after the best one by which, with a look-ahead, it would lead to what is asked.
    way: list[str] = field(default_factory=list, repr=False)
    # Ids of the rules that token memory reads: with a look-ahead a plan, else the K.
    read: list[str] = field(default_factory=list, repr=False)


class SearchResult(NamedTuple):
    """What the last search of a row returned, as rows of the bank: scores of the K, and as in `PlusRetrieval`."""

    scores: dict[int, float]
    read: list[int]
    way: Sequence[int] = ()


class PlusMemory(RuleMemory):
    """A `RuleMemory` whose confidence layer finds rules as `PlusConfig` says; parameters are the same."""

    config: PlusConfig

    def __init__(self, *args: Any, tokenizer: Any = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if tokenizer is None and self.config.word_weight:
            raise ValueError(
                "a search by words needs the tokenizer, got None; make it with dynarule.rule_memory(model, tokenizer, "
                "bank), or set word_weight to 0"
            )
        self.tokenizer = tokenizer
        self._ids: list[Tensor] = []  # of the text so far
        self._context = SearchContext()
        self._inputs: list[SearchInput] = []  # of the prompt (0) and of each <search> of this forward
        self._results: dict[int, SearchResult] = {}
        self._tables_made: tuple[tuple[int, ...], Tables] | None = None

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, before its layers run."""
        super().begin(input_ids, attention_mask, past_length)
        self._ids = [*(self._ids if past_length else ()), input_ids]
        self._real_BT = real_tokens(self._search_BT, attention_mask)

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        """Return what a layer's attention reads besides the text, and note what a search will know."""
        if layer == self.config.confidence_layer and layer in self._projections:
            self._inputs = self._context.read(hidden_BTC, self._search_BT, self._real_BT, self._question_BT)
        return super().attended(layer, hidden_BTC, block)

    def search(
        self, layer: int, query_NHD: Tensor | None, rows: list[int], number: int, allowed_NM: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and bank rows of the best K rules, and note what is worth reading of them."""
        if layer != self.config.confidence_layer:
            return super().search(layer, query_NHD, rows, number, allowed_NM)
        projection: Any = self.adapter[layer]
        known = SearchInput(*(part[rows] for part in self._inputs[number]))
        query_NHD = projection.reader(known).unflatten(-1, (-1, projection.head_dim))
        scores_NM = self.bank.scores(projection, query_NHD)
        texts = self.search_texts(rows, known.kind_BT) if self.config.word_weight else []
        if texts:
            words = words_of(self.bank, self.config.word_stemmer)
            begun_NM = torch.stack([words.begun(text, self.bank) for text in texts])
            scores_NM = scores_NM + self.config.word_weight * begun_NM.to(scores_NM)
        levels = self._levels(projection, known, texts, allowed_NM)
        if levels:
            scores_NM = planned(scores_NM, levels, projection.lookahead.weight.float())
        count, top_k = len(self.bank), self.config.top_k
        kept = count if top_k is None else min(top_k, count)
        scores_NK, rules_NK = largest(scores_NM, kept, allowed_NM)
        self._results = {}
        ranked = zip(rows, rules_NK.tolist(), scores_NK.tolist(), strict=True)
        for at, (row, rules, scores) in enumerate(ranked):
            read, way = rules, []  # type: list[int], list[int]
            if levels:
                read, way = projection.lookahead.plan(
                    rules,
                    scores,
                    [level_NM[at] for level_NM in levels],
                    self._tables(),
                    self.config.lookahead_width,
                    whole=not number,
                )
            self._results[row] = SearchResult(dict(zip(rules, scores, strict=True)), read, way)
        return scores_NK, rules_NK

    def _find(self, layer: int, query_BHD: Tensor | None, has_B: Tensor | None, number: int) -> Tensor:
        """Return what to read, (B, K): first what a search plans with, where scores say what is read."""
        kept_BK = super()._find(layer, query_BHD, has_B, number)
        if layer == self.config.confidence_layer and self.config.score_weight:
            for row in self._rows_of(has_B):
                result = self._results[row]
                first = [*dict.fromkeys([*result.read, *result.scores])]
                kept_BK[row] = kept_BK.new_tensor(first[: kept_BK.shape[1]])
        return kept_BK

    def _weigh(self, count: int, has_B: Tensor | None, number: int) -> Tensor:
        """Return what scores add to the attention to each of the K rules that are read, (B, K).

        With a look-ahead a plan says which are read. What a prompt finds is not read where a mark of the base's own
        opens the answer, and searches once more.
        """
        shift_BK = torch.full((len(self._steps_B), count), UNREAD)
        for row in self._rows_of(has_B) if number or not self.config.own_mark else ():
            weights = self._weights(self._results[row])
            rules = self._chosen[number][row].tolist()
            shift_BK[row] = torch.tensor([weights.get(rule, UNREAD) for rule in rules])
        return shift_BK

    def _weights(self, result: SearchResult) -> dict[int, float]:
        """Weigh what a row reads: reading alone cannot know which of several that look alike was meant.

        A rule that a plan brings and no search scored counts as the last of the K.
        """
        scores, weight, limit = result.scores, self.config.score_weight, self.config.score_limit
        best, unscored = max(scores.values()), min(scores.values())
        lowest = UNREAD if limit is None else -limit
        return {rule: max(weight * (scores.get(rule, unscored) - best), lowest) for rule in result.read}

    def search_texts(self, rows: Sequence[int], kind_NT: Tensor) -> list[SearchText]:
        """Return what each search goes by in words."""
        tokens, texts = torch.cat(self._ids, 1)[list(rows)].tolist(), []
        # A prompt's own token is the question's last one.
        parts = ((QUESTION, TOKEN), (SINCE,), (EARLIER, SINCE))
        for ids, kinds in zip(tokens, kind_NT.tolist(), strict=True):
            pairs = [pair for pair in zip(ids, kinds, strict=False) if pair[0] != self.search_token_id]
            of_parts = ([token for token, kind in pairs if kind in part] for part in parts)
            texts.append(SearchText(*(self.tokenizer.decode(part).strip() for part in of_parts)))
        return texts

    def retrieval(
        self, row: int, step: int, layer: int, rules: list[int], scores: list[float]
    ) -> PlusRetrieval:
        """Return one search for the trace."""
        result, paper = self._results[row], super().retrieval(row, step, layer, rules, scores)
        way, read = ([self.bank.ids[i] for i in part] for part in (result.way, result.read))
        return PlusRetrieval(**vars(paper), way=way, read=read)

    def _levels(
        self,
        projection: PlusProjection,
        known: SearchInput,
        texts: Sequence[SearchText],
        allowed_NM: Tensor | None,
    ) -> list[Tensor]:
        """Return the backward levels of some searches, (N, M) each; none if the adapter does not look ahead."""
        if projection.lookahead is None or not self.config.lookahead:
            return []
        tables = self._tables()
        goal_NV = projection.lookahead.goal(known) @ tables.values.different.T
        if tables.words is not None:
            shared_NV = torch.stack([tables.words.conclusions(text.question) for text in texts])
            goal_NV = goal_NV + tables.word_weight * shared_NV.to(goal_NV)
        count, width = self.config.lookahead, self.config.lookahead_width
        return projection.lookahead.levels(goal_NV, tables, count, width, allowed_NM)

    def _tables(self) -> Tables:
        """Return what the backward levels go over; made once for each state of the bank and of the adapter."""
        bank, projection = self.bank, self.adapter[self.config.confidence_layer]  # type: ignore[index]
        ahead: Any = projection.lookahead
        weights = ahead.weight, ahead.link.weight, ahead.link.bias
        state = bank.version, *map(version_of, weights)
        if self._tables_made is None or self._tables_made[0] != state:
            keys, values = (side.to(bank.device, torch.float32) for side in (bank.keys, bank.values))
            weight, of_levels = self.config.word_weight, float(ahead.weight)
            counts = weight and of_levels > MIN_LEVEL_WEIGHT
            words = words_of(bank, self.config.word_stemmer) if counts else None
            tables = Tables(keys, values, words, weight / of_levels if counts else 0.0, {})
            self._tables_made = state, tables
        return self._tables_made[1]
