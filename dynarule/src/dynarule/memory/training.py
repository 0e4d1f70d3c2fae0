"""A rule memory for training: one pool of rules for the whole batch, gradients through what is kept.

It goes through the same hooks as `RuleMemory` (see `dynarule.attach`), but reads a teacher-forced sequence at once:
every token attends to one set of K rules per layer and row, and the confidence layer's scores of every step come out
for the loss. Without ``top_k`` all M rules are attended in every layer (stage 1, KBLaM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..projection import RuleProjection, score_keys
from .candidates import keep_top, pool_scores, positives
from .selection import LayerMemory, mean_query, project, step_queries

PoolQueries = Literal["full", "prompt"]
"""Whose mean query builds the candidate set: the whole sequence's (the paper), or the prompt's, as inference does."""


@dataclass(frozen=True)
class RuleBatch:
    """What a batch needs besides its tokens.

    Attributes
    ----------
    keys_MP, values_MP : Tensor
        Embeddings of the pool's rules and conclusions.
    question_BT, answer_BT : Tensor
        True for question tokens, and from the answer on.
    search_BS : Tensor
        Positions of the ``<search>`` tokens before steps 2, 3, ...; -1 where a row has fewer.
    gold_BSG : Tensor
        Pool rows of the gold rules of every step (one more than ``<search>`` tokens), -1 for padding.
    """

    keys_MP: Tensor
    values_MP: Tensor
    question_BT: Tensor
    answer_BT: Tensor
    search_BS: Tensor
    gold_BSG: Tensor


@dataclass(frozen=True)
class StepScores:
    """Side output of the confidence layer, for the loss.

    Attributes
    ----------
    scores_BSK : Tensor
        Scores of the kept rules for every step, with gradient.
    positives_BSK : Tensor
        Which of them are gold at that step.
    sequence_BK, gold_BK : Tensor
        Scores with the mean query of the whole sequence, and which kept rules are gold at any step (SR-KI).
    """

    scores_BSK: Tensor
    positives_BSK: Tensor
    sequence_BK: Tensor
    gold_BK: Tensor


class TrainingMemory(LayerMemory):
    """Rules for one training batch at a time: `load` it, run the model once, read `scores`.

    Parameters
    ----------
    adapter : RuleAdapter, or a model with an adapter
        The projections to train.
    pool_queries : {"full", "prompt"}
        Whose query builds a layer's candidate set (equation 3), see `PoolQueries`.
    full_dot : bool
        See `dynarule.projection.score_keys`.
    force_gold : bool
        Keep gold rules at the confidence layer whatever their scores.
    all_rules : bool
        Attend to all M rules whatever the adapter's ``top_k`` is (stage 1).

    Attributes
    ----------
    scores : StepScores or None
        Of the confidence layer, if there is one.
    measure : bool
        Measure retrieval as serving has it: score all M rules, force none, and let the prompt choose what the layers
        keep, never the answer's words. Without gradients through the scores.
    """

    def __init__(
        self,
        adapter: RuleAdapter | nn.Module,
        pool_queries: PoolQueries = "full",
        full_dot: bool = False,
        force_gold: bool = True,
        all_rules: bool = False,
    ) -> None:
        if pool_queries not in get_args(PoolQueries):
            raise ValueError(f"pool_queries must be one of {get_args(PoolQueries)}, got {pool_queries!r}")
        super().__init__(adapter)
        self.pool_queries, self.full_dot = pool_queries, full_dot
        self.force_gold, self.all_rules, self.measure = force_gold, all_rules, False
        self.scores: StepScores | None = None
        self.kept: dict[int, Tensor] = {}
        self._loaded: RuleBatch | None = None

    @property
    def batch(self) -> RuleBatch:
        """What was loaded."""
        assert self._loaded is not None
        return self._loaded

    def load(self, batch: RuleBatch | None) -> None:
        """Set the next forward's rules; None for no rules: the base model alone.

        Raises
        ------
        ValueError
            If the embeddings have another width, or gold rules and ``<search>`` tokens do not agree.
        """
        if batch is not None:
            width, searches = self.config.encoder_dim, batch.search_BS.shape[1]
            if batch.keys_MP.shape != batch.values_MP.shape or batch.keys_MP.shape[-1] != width:
                raise ValueError(
                    f"keys and values must be (rules, {width}), got {tuple(batch.keys_MP.shape)} and "
                    f"{tuple(batch.values_MP.shape)}; encode rules with the adapter's encoder"
                )
            if batch.gold_BSG.shape[1] != searches + 1:
                raise ValueError(
                    f"a batch with {searches} <search> tokens has {searches + 1} steps, got gold rules of "
                    f"{batch.gold_BSG.shape[1]}"
                )
        self._loaded = batch

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Forget the last forward's scores and selections."""
        super().begin(input_ids, attention_mask, past_length)
        if past_length:
            raise ValueError("a training memory reads whole sequences; generate with RuleMemory")
        self.scores, self.kept = None, {}
        if self._loaded is None:
            return
        question_BT = self.batch.question_BT
        if question_BT.shape != input_ids.shape:
            raise ValueError(
                f"the loaded batch has tokens {tuple(question_BT.shape)}, the model got {tuple(input_ids.shape)}; "
                "load each batch before its forward"
            )
        real_BT = torch.ones_like(question_BT) if attention_mask is None else attention_mask.bool()
        # The answer names the rules, and serving has not written it yet.
        whole = self.pool_queries == "full" and not self.measure
        self._choosing_BT = real_BT if whole else real_BT & ~self.batch.answer_BT

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules of the loaded batch."""
        return self._loaded is not None and len(self.batch.keys_MP) > 0

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Return what a layer keeps of the pool, and leave its scores behind.

        Under gradient checkpointing all of this runs again in the backward pass; selections and scores stay those of
        the first time.
        """
        projection, config = self.adapter[layer], self.config
        if layer not in self.kept:
            self.kept[layer] = self._select(layer, projection, query_BHTD)
        rows_BK = self.kept[layer]
        key_BKF, value_BKF = self._project(projection, rows_BK, whole=self._keeps_all())
        if layer == config.confidence_layer:
            scores = self._score(layer, projection, query_BHTD, key_BKF)
            self.scores = self.scores or scores
        return projection.heads(key_BKF), projection.heads(value_BKF), None, rows_BK.shape[1]

    def _keeps_all(self) -> bool:
        top_k = self.config.top_k
        return self.all_rules or top_k is None or top_k >= len(self.batch.keys_MP)

    def _select(self, layer: int, projection: RuleProjection, query_BHTD: Tensor) -> Tensor:
        """Return the pool rows that each batch row keeps, (B, K)."""
        batch, config, rows = self.batch, self.config, len(query_BHTD)
        if config.shares(layer):
            assert config.confidence_layer is not None
            return self.kept[config.confidence_layer]
        if self._keeps_all():
            return torch.arange(len(batch.keys_MP), device=query_BHTD.device).expand(rows, -1)
        query_BHTD = query_BHTD.detach()
        forced = self.force_gold and not self.measure and layer == config.confidence_layer
        scores_BM = pool_scores(projection, mean_query(query_BHTD, self._choosing_BT), batch.keys_MP)
        return keep_top(scores_BM, config.top_k, batch.gold_BSG if forced else None)

    def _project(self, projection: RuleProjection, rows_BK: Tensor, whole: bool) -> tuple[Tensor, Tensor]:
        """Project each rule that any row keeps once: (B, K, F) keys and values; ``whole``: all, in pool order."""
        keys_MP, values_MP = self.batch.keys_MP, self.batch.values_MP
        if whole:
            key_MF, value_MF = project(projection, keys_MP, values_MP)
            return key_MF.expand(len(rows_BK), -1, -1), value_MF.expand(len(rows_BK), -1, -1)
        union_U, place_BK = rows_BK.unique(return_inverse=True)
        key_UF, value_UF = project(projection, keys_MP[union_U], values_MP[union_U])
        embed = nn.functional.embedding  # its backward adds up rows faster than indexing's
        return embed(place_BK, key_UF), embed(place_BK, value_UF)

    def _score(
        self, layer: int, projection: RuleProjection, query_BHTD: Tensor, key_BKF: Tensor
    ) -> StepScores:
        batch, rows_BK = self.batch, self.kept[layer]
        if self.measure:
            rows_BK = torch.arange(len(batch.keys_MP), device=rows_BK.device).expand(len(rows_BK), -1)
            with torch.no_grad():
                key_BKF = self._project(projection, rows_BK, whole=True)[0]
        queries_BSHD = step_queries(query_BHTD, batch.question_BT, batch.search_BS)
        sequence_B1HD = mean_query(query_BHTD, self._choosing_BT)[:, None]
        scores = score_keys(torch.cat([queries_BSHD, sequence_B1HD], 1), key_BKF, self.full_dot)
        gold = positives(rows_BK, batch.gold_BSG)
        return StepScores(scores[:, :-1], gold, scores[:, -1], gold.any(1))
