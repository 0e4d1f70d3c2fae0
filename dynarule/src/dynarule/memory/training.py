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
from .candidates import keep_top, pool_scores, positives
from .selection import LayerMemory, mean_query, project, sees_own_set, step_queries

PoolQueries = Literal["full", "prompt", "step"]
"""Whose query builds the candidate set: the mean of the whole sequence as the paper writes, or of the prompt as
inference does at first; or each step's own, as inference does with ``<search>``: one set per step, for its tokens."""

UNSEEN = -1e4  # score of a rule that a token does not see: far below any, and finite


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
    reading_BT : Tensor or None
        Tokens whose rule scores are wanted (`TrainingMemory.reading`), at layers that read what the confidence layer
        keeps.
    own_BM : Tensor or None
        Where all rules are read, those that a row's tokens see; None: all of the pool.
    """

    keys_MP: Tensor
    values_MP: Tensor
    question_BT: Tensor
    answer_BT: Tensor
    search_BS: Tensor
    gold_BSG: Tensor
    reading_BT: Tensor | None = None
    own_BM: Tensor | None = None


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
    pool_queries : {"full", "prompt", "step"}
        Whose query builds a layer's candidate set (equation 3), see `PoolQueries`. With "step", K rules for each step
        at the confidence layer and those that share them: training reads what serving would read.
    hide_later : bool
        At the confidence layer, where gold rules are forced into the set, those of later steps are seen only from
        their ``<search>`` on. Else, as the paper trains, all tokens attend to all kept rules.
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
        hide_later: bool = False,
        full_dot: bool = False,
        force_gold: bool = True,
        all_rules: bool = False,
    ) -> None:
        if pool_queries not in get_args(PoolQueries):
            raise ValueError(f"pool_queries must be one of {get_args(PoolQueries)}, got {pool_queries!r}")
        super().__init__(adapter)
        self.pool_queries, self.hide_later, self.full_dot = pool_queries, hide_later, full_dot
        self.force_gold, self.all_rules, self.measure = force_gold, all_rules, False
        self.scores: StepScores | None = None
        self.reading: dict[int, tuple[Tensor, Tensor]] = {}
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
        self.scores, self.kept, self.reading = None, {}, {}
        if self._loaded is None:
            return
        question_BT, search_BS = self.batch.question_BT, self.batch.search_BS
        if question_BT.shape != input_ids.shape:
            raise ValueError(
                f"the loaded batch has tokens {tuple(question_BT.shape)}, the model got {tuple(input_ids.shape)}; "
                "load each batch before its forward"
            )
        real_BT = torch.ones_like(question_BT) if attention_mask is None else attention_mask.bool()
        # The answer names the rules, and serving has not written it yet.
        whole = self.pool_queries == "full" and not self.measure
        self._choosing_BT = real_BT if whole else real_BT & ~self.batch.answer_BT
        # The step that each token belongs to, from 0.
        marks_BT = torch.zeros_like(input_ids).scatter_add_(
            1, search_BS.clamp_min(0), (search_BS >= 0).to(input_ids)
        )
        self._step_BT = marks_BT.cumsum(-1)

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
        visible_BTK = self._visible(layer, rows_BK)
        if layer == config.confidence_layer:
            scores = self._score(layer, projection, query_BHTD, key_BKF)
            self.scores = self.scores or scores
        if self.batch.reading_BT is not None and (layer == config.confidence_layer or config.shares(layer)):
            self.reading.setdefault(layer, self._read(layer, query_BHTD, key_BKF, visible_BTK))
        count = rows_BK.shape[1] // (self.batch.gold_BSG.shape[1] if self._by_step(layer) else 1)
        return projection.heads(key_BKF), projection.heads(value_BKF), visible_BTK, count

    def _keeps_all(self) -> bool:
        top_k = self.config.top_k
        return self.all_rules or top_k is None or top_k >= len(self.batch.keys_MP)

    def _by_step(self, layer: int) -> bool:
        """Say whether a layer's kept rules are one set per step, one after the other."""
        reached = layer == self.config.confidence_layer or self.config.shares(layer)
        return self.pool_queries == "step" and reached and not self._keeps_all()

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
        gold_NSG = batch.gold_BSG if forced else None
        if self._by_step(layer):  # N = B S, each with a set and gold rules of its own
            query_NHD = step_queries(query_BHTD, batch.question_BT, batch.search_BS).flatten(0, 1)
            gold_NSG = None if gold_NSG is None else gold_NSG.flatten(0, 1)[:, None]
        else:
            query_NHD = mean_query(query_BHTD, self._choosing_BT)
        return keep_top(pool_scores(projection, query_NHD, batch.keys_MP), config.top_k, gold_NSG).view(
            rows, -1
        )

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
        if not self.measure and self._by_step(layer):
            spare_B1K = self._spare(rows_BK)[:, None]
            scores, gold = scores.masked_fill(spare_B1K, UNSEEN), gold & ~spare_B1K
        return StepScores(scores[:, :-1], gold, scores[:, -1], gold.any(1))

    def _spare(self, rows_BK: Tensor) -> Tensor:
        """Say which places hold a rule of an earlier step's set once more, or are of a step that a row has not: (B, K).

        So a rule counts once in the loss however many steps keep it, and a row's loss is its own in any batch.
        """
        there_BS = nn.functional.pad(self.batch.search_BS, (1, 0)) >= 0  # the prompt is always there
        gone_BK = ~there_BS.repeat_interleave(rows_BK.shape[1] // there_BS.shape[1], dim=1)
        same_BKK = (rows_BK[:, :, None] == rows_BK[:, None, :]) & ~gone_BK[:, None, :]
        return gone_BK | same_BKK.tril(-1).any(-1)

    def _visible(self, layer: int, rows_BK: Tensor) -> Tensor | None:
        """Say which kept rules a token sees, None for all: (B, T, K).

        With one set per step, its own; with ``hide_later``, no gold rule before the first step that needs it.
        """
        if self.batch.own_BM is not None and self._keeps_all():
            return self.batch.own_BM[:, None].expand(-1, self._step_BT.shape[1], -1)
        if self._by_step(layer):
            sets = self.batch.gold_BSG.shape[1]
            return sees_own_set(self._step_BT, [rows_BK.shape[1] // sets] * sets)
        if not self.hide_later or layer != self.config.confidence_layer:
            return None
        gold_BSK = positives(rows_BK, self.batch.gold_BSG)
        first_BK = torch.where(gold_BSK.any(1), gold_BSK.int().argmax(1), 0)
        return self._step_BT[:, :, None] >= first_BK[:, None]

    def _read(
        self, layer: int, query_BHTD: Tensor, key_BKF: Tensor, visible_BTK: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scores (N, K) of the tokens of ``reading_BT``, and which rules are gold at their step."""
        assert self.batch.reading_BT is not None
        rows_N, places_N = self.batch.reading_BT.nonzero(as_tuple=True)
        query_N1HD = query_BHTD[rows_N, :, places_N][:, None]
        scores_NK = score_keys(query_N1HD, key_BKF[rows_N])[:, 0]
        gold_BSK = positives(self.kept[layer], self.batch.gold_BSG)
        gold_NK = gold_BSK[rows_N, self._step_BT[rows_N, places_N]]
        if visible_BTK is not None and self._by_step(layer):
            seen_NK = visible_BTK[rows_N, places_N]
            scores_NK, gold_NK = scores_NK.masked_fill(~seen_NK, UNSEEN), gold_NK & seen_NK
        return scores_NK, gold_NK
