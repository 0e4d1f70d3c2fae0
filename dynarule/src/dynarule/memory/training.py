"""A rule memory for training: one pool of rules for the whole batch, gradients through what is kept.

It goes through the same hooks as `RuleMemory` (see `dynarule.attach`), but reads a teacher-forced sequence at once:
every token attends to one set of K rules per layer and row (or to its step's own), and the confidence layer's scores of
every step come out for the loss. Without ``top_k`` all M rules are attended in every layer (stage 1, KBLaM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..projection import RuleProjection, score_keys
from .candidates import PoolQueries, keep_top, pool_scores, pool_tokens, positives
from .selection import LayerMemory, mean_query, project, sees_own_set, step_queries

Visibility = Literal["all", "step"]
"""Whether all tokens attend to all kept rules, as the paper trains, or gold rules of later steps appear at their
``<search>``."""

UNSEEN = -1e4  # score of a rule that a token does not see: far below any, and finite


@dataclass(frozen=True)
class RuleBatch:
    """What a batch needs besides its tokens.

    Attributes
    ----------
    keys_MP, values_MP : Tensor
        Embeddings of the pool's rules and conclusions.
    question_BT : Tensor
        True for question tokens.
    search_BS : Tensor
        Positions of the ``<search>`` tokens before steps 2, 3, ...; -1 where a row has fewer.
    gold_BSG : Tensor
        Pool rows of the gold rules of every step (one more than ``<search>`` tokens), -1 for padding.
    answer_BT : Tensor or None
        True from the answer on.
    reading_BT : Tensor or None
        Tokens whose rule scores are wanted (`TrainingMemory.reading`), at layers that read what the confidence layer
        keeps.
    """

    keys_MP: Tensor
    values_MP: Tensor
    question_BT: Tensor
    search_BS: Tensor
    gold_BSG: Tensor
    answer_BT: Tensor | None = None
    reading_BT: Tensor | None = None


@dataclass(frozen=True)
class StepScores:
    """Side output of a layer, for the loss.

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
    pool_queries : {"full", "prompt", "step"}
        Whose query builds a layer's candidate set (equation 3), see `candidates.PoolQueries`. With "step", K rules for
        each step at the confidence layer and those that share them: training reads what serving would read.
    visibility : {"all", "step"}
        Which tokens attend to the gold rules of later steps. ``step`` applies to the confidence layer, where they are
        forced into the set.
    full_dot : bool
        See `dynarule.projection.score_keys`.
    force_gold : bool
        Keep gold rules at the confidence layer whatever their scores.
    all_rules : bool
        Attend to all M rules whatever the adapter's ``top_k`` is (stage 1).
    score_layers : sequence of int or None
        Layers that leave scores behind; None: the confidence layer.

    Attributes
    ----------
    scores : dict
        `StepScores` by layer.
    reading : dict
        By layer, scores (N, K) of the kept rules for the N tokens of ``reading_BT``, and which are gold at their step.
    measure : bool
        Measure retrieval as serving has it: score all M rules, force none, and let the prompt (with "step", each step)
        choose what the layers keep, never the answer's words. Without gradients through the scores.
    """

    def __init__(
        self,
        adapter: RuleAdapter | nn.Module,
        pool_queries: PoolQueries = "full",
        visibility: Visibility = "all",
        full_dot: bool = False,
        force_gold: bool = True,
        all_rules: bool = False,
        score_layers: list[int] | None = None,
    ) -> None:
        if visibility not in ("all", "step"):
            raise ValueError(f"visibility must be 'all' or 'step', got {visibility!r}")
        if pool_queries not in get_args(PoolQueries):
            raise ValueError(f"pool_queries must be one of {get_args(PoolQueries)}, got {pool_queries!r}")
        super().__init__(adapter)
        self.pool_queries, self.visibility = pool_queries, visibility
        self.full_dot, self.force_gold, self.all_rules, self.measure = full_dot, force_gold, all_rules, False
        layer = self.config.confidence_layer
        self.score_layers = set(
            score_layers if score_layers is not None else [] if layer is None else [layer]
        )
        unheld = sorted(layer for layer in self.score_layers if layer not in self.adapter)
        if unheld:
            raise ValueError(f"layers {unheld} hold no rules, so they have no scores")
        self.scores: dict[int, StepScores] = {}
        self.reading: dict[int, tuple[Tensor, Tensor]] = {}
        self.kept: dict[int, Tensor] = {}
        self._batch: RuleBatch | None = None
        self._pool_BT: Tensor | None = None

    def load(self, batch: RuleBatch | None) -> None:
        """Set the next forward's rules; None for no rules: the base model alone.

        Raises
        ------
        ValueError
            If the embeddings have another width, or gold rules and ``<search>`` tokens do not agree.
        """
        if batch is not None:
            width = self.config.encoder_dim
            if batch.keys_MP.shape != batch.values_MP.shape or batch.keys_MP.shape[-1] != width:
                raise ValueError(
                    f"keys and values must be (rules, {width}), got {tuple(batch.keys_MP.shape)} and "
                    f"{tuple(batch.values_MP.shape)}; encode rules with the adapter's encoder"
                )
            if batch.gold_BSG.shape[1] != batch.search_BS.shape[1] + 1:
                raise ValueError(
                    f"a batch with {batch.search_BS.shape[1]} <search> tokens has {batch.search_BS.shape[1] + 1} "
                    f"steps, got gold rules of {batch.gold_BSG.shape[1]}"
                )
        self._batch = batch

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Forget the last forward's scores and selections."""
        super().begin(input_ids, attention_mask, past_length)
        if past_length:
            raise ValueError("a training memory reads whole sequences; generate with RuleMemory")
        self.scores, self.kept, self.reading = {}, {}, {}
        if self._batch is None:
            return
        if self._batch.question_BT.shape != input_ids.shape:
            raise ValueError(
                f"the loaded batch has tokens {tuple(self._batch.question_BT.shape)}, "
                f"the model got {tuple(input_ids.shape)}; load each batch before its forward"
            )
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        # The answer names the rules, and serving has not written it yet.
        queries: PoolQueries = "prompt" if self.measure and self.pool_queries == "full" else self.pool_queries
        self._pool_BT = pool_tokens(real, self._batch.question_BT, queries, self._batch.answer_BT)

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules of the loaded batch."""
        return self._batch is not None and len(self._batch.keys_MP) > 0

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Return what a layer keeps of the pool, and leave its scores behind.

        Under gradient checkpointing this runs again in the backward pass; selections and scores stay those of the
        first time.
        """
        batch, projection, config = self._batch, self.adapter[layer], self.config
        assert batch is not None
        if layer not in self.kept:
            self.kept[layer] = self._select(layer, projection, query_BHTD, batch)
        rows_BK = self.kept[layer]
        key_BKF, value_BKF = self._project(projection, batch, rows_BK, self._keeps_all(batch))
        visible_BTK = self._visible(layer, rows_BK, batch)
        if layer in self.score_layers:
            self.scores.setdefault(layer, self._score(layer, projection, query_BHTD, key_BKF, rows_BK, batch))
        if batch.reading_BT is not None and (layer == config.confidence_layer or config.shares(layer)):
            seen_BTK = visible_BTK if self._by_step(layer, batch) else None
            self.reading.setdefault(layer, self._read(query_BHTD, key_BKF, rows_BK, batch, seen_BTK))
        steps = batch.gold_BSG.shape[1] if self._by_step(layer, batch) else 1
        count = rows_BK.shape[1] // steps
        return projection.heads(key_BKF), projection.heads(value_BKF), visible_BTK, count

    def _select(self, layer: int, projection: RuleProjection, query_BHTD: Tensor, batch: RuleBatch) -> Tensor:
        """Return the pool rows that each batch row keeps, (B, K)."""
        config = self.config
        if config.shares(layer):
            assert config.confidence_layer is not None
            return self.kept[config.confidence_layer]
        rows, count, top_k = len(query_BHTD), len(batch.keys_MP), config.top_k
        if self._keeps_all(batch):
            return torch.arange(count, device=query_BHTD.device).expand(rows, -1)
        assert self._pool_BT is not None
        gold = self.force_gold and not self.measure and layer == config.confidence_layer
        gold_BSG = batch.gold_BSG if gold else None
        if not self._by_step(layer, batch):
            query_BHD = mean_query(query_BHTD.detach(), self._pool_BT)
            return keep_top(pool_scores(projection, query_BHD, batch.keys_MP), top_k, gold_BSG)
        query_BSHD = step_queries(query_BHTD.detach(), batch.question_BT, batch.search_BS)
        scores_NM = pool_scores(projection, query_BSHD.flatten(0, 1), batch.keys_MP)
        gold_N1G = None if gold_BSG is None else gold_BSG.flatten(0, 1)[:, None]
        return keep_top(scores_NM, top_k, gold_N1G).view(rows, -1)

    def _keeps_all(self, batch: RuleBatch) -> bool:
        top_k = self.config.top_k
        return self.all_rules or top_k is None or top_k >= len(batch.keys_MP)

    def _by_step(self, layer: int, batch: RuleBatch) -> bool:
        """Say whether a layer's kept rules are one set per step, one after the other."""
        config = self.config
        reached = layer == config.confidence_layer or config.shares(layer)
        return self.pool_queries == "step" and reached and not self._keeps_all(batch)

    def _project(
        self, projection: RuleProjection, batch: RuleBatch, rows_BK: Tensor, whole: bool
    ) -> tuple[Tensor, Tensor]:
        """Project each rule that any row keeps once: (B, K, F) keys and values; ``whole``: all, in pool order."""
        if whole:
            key_MF, value_MF = project(projection, batch.keys_MP, batch.values_MP)
            return key_MF.expand(len(rows_BK), -1, -1), value_MF.expand(len(rows_BK), -1, -1)
        union_U, place_BK = rows_BK.unique(return_inverse=True)
        key_UF, value_UF = project(projection, batch.keys_MP[union_U], batch.values_MP[union_U])
        embed = nn.functional.embedding  # its backward adds up rows faster than indexing's
        return embed(place_BK, key_UF), embed(place_BK, value_UF)

    def _score(
        self,
        layer: int,
        projection: RuleProjection,
        query_BHTD: Tensor,
        key_BKF: Tensor,
        rows_BK: Tensor,
        batch: RuleBatch,
    ) -> StepScores:
        assert self._pool_BT is not None
        if self.measure:
            rows_BK = torch.arange(len(batch.keys_MP), device=rows_BK.device).expand(len(rows_BK), -1)
            with torch.no_grad():
                key_BKF = self._project(projection, batch, rows_BK, whole=True)[0]
        queries_BSHD = step_queries(query_BHTD, batch.question_BT, batch.search_BS)
        sequence_B1HD = mean_query(query_BHTD, self._pool_BT)[:, None]
        scores = score_keys(torch.cat([queries_BSHD, sequence_B1HD], 1), key_BKF, self.full_dot)
        gold = positives(rows_BK, batch.gold_BSG)
        if not self.measure and self._by_step(layer, batch):
            spare_B1K = self._spare(rows_BK, batch)[:, None]
            scores, gold = scores.masked_fill(spare_B1K, UNSEEN), gold & ~spare_B1K
        return StepScores(scores[:, :-1], gold, scores[:, -1], gold.any(1))

    def _spare(self, rows_BK: Tensor, batch: RuleBatch) -> Tensor:
        """Say which places hold a rule of an earlier step's set once more, or are of a step that a row has not: (B, K).

        So a rule counts once in the loss however many steps keep it, and a row's loss is its own in any batch.
        """
        steps = batch.gold_BSG.shape[1]
        there_BS = nn.functional.pad(batch.search_BS, (1, 0)) >= 0  # the prompt is always there
        gone_BK = ~there_BS.repeat_interleave(rows_BK.shape[1] // steps, dim=1)
        same_BKK = (rows_BK[:, :, None] == rows_BK[:, None, :]) & ~gone_BK[:, None, :]
        return gone_BK | same_BKK.tril(-1).any(-1)

    def _visible(self, layer: int, rows_BK: Tensor, batch: RuleBatch) -> Tensor | None:
        """Say which kept rules a token sees, None for all: (B, T, K).

        With one set per step, its own; with ``visibility`` "step", no gold rule before the first step that needs it.
        """
        if self._by_step(layer, batch):
            steps = batch.gold_BSG.shape[1]
            return sees_own_set(_steps(batch), [rows_BK.shape[1] // steps] * steps)
        if self.visibility == "all" or layer != self.config.confidence_layer:
            return None
        gold_BSK = positives(rows_BK, batch.gold_BSG)
        first_BK = torch.where(gold_BSK.any(1), gold_BSK.int().argmax(1), 0)
        return _steps(batch)[:, :, None] >= first_BK[:, None]

    def _read(
        self, query_BHTD: Tensor, key_BKF: Tensor, rows_BK: Tensor, batch: RuleBatch, seen_BTK: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scores (N, K) of the tokens of ``reading_BT``, and which rules are gold at their step."""
        assert batch.reading_BT is not None
        rows_N, places_N = batch.reading_BT.nonzero(as_tuple=True)
        query_N1HD = query_BHTD[rows_N, :, places_N][:, None]
        scores_NK = score_keys(query_N1HD, key_BKF[rows_N])[:, 0]
        gold_NK = positives(rows_BK, batch.gold_BSG)[rows_N, _steps(batch)[rows_N, places_N]]
        if seen_BTK is not None:
            seen_NK = seen_BTK[rows_N, places_N]
            scores_NK, gold_NK = scores_NK.masked_fill(~seen_NK, UNSEEN), gold_NK & seen_NK
        return scores_NK, gold_NK


def _steps(batch: RuleBatch) -> Tensor:
    """Return the step that each token belongs to, from 0: (B, T)."""
    step_BT = torch.zeros(batch.question_BT.shape, dtype=torch.long, device=batch.question_BT.device)
    step_BT.scatter_add_(1, batch.search_BS.clamp_min(0), (batch.search_BS >= 0).long())
    return step_BT.cumsum(-1)
