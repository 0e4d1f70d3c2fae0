"""A rule memory for training: one pool of rules for the whole batch, gradients through what is kept.

It goes through the same hooks as `RuleMemory` (see `dynarule.attach`), but reads a teacher-forced sequence at once:
every token attends to one set of K rules per layer and row (equation 3), and the confidence layer's scores of every
step come out for the loss. Without ``top_k`` all M rules are attended in every layer (stage 1, KBLaM).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..projection import RuleProjection, score_keys
from .selection import PROMPTS, LayerMemory, mean_query, project


@dataclass(frozen=True)
class RuleBatch:
    """What a batch needs besides its tokens."""

    keys_MP: Tensor  # embeddings of the pool's rules
    values_MP: Tensor  # and of their conclusions
    question_BT: Tensor  # True for question tokens; behind them is the answer
    search_BS: Tensor  # positions of the <search> before steps 2, 3, ...; -1 where a row has fewer
    gold_BSG: Tensor  # pool rows of every step's gold rules (one step more than <search>), -1 for padding


@dataclass(frozen=True)
class StepScores:
    """Side output of the confidence layer, for the loss."""

    scores_BSK: Tensor  # of the kept rules for every step, with gradient
    positives_BSK: Tensor  # which of them are gold at that step
    sequence_BK: Tensor  # scores with the mean query of the whole sequence (SR-KI)


class TrainingMemory(LayerMemory):
    """Rules for one training batch at a time: `load` it, run the model once, read `scores`.

    Parameters
    ----------
    adapter : RuleAdapter, or a model with an adapter
        The projections to train.
    prompt_queries : bool
        A layer's candidates are those of the prompt's mean query, as in serving, not of the whole sequence's (paper).
    all_rules : bool
        Attend to all M rules whatever the adapter's ``top_k`` is (stage 1).
    steps : dict of str to float or None
        Each token reads the gold rules of its step, as a search leaves them, with others that its scores weigh down:
        settings of the addition ``steps``, see `dynarule.training.recipe.ADDITIONS`.

    Attributes
    ----------
    scores : StepScores or None
        Of the confidence layer, if there is one.
    kept : dict of int to Tensor
        Pool rows that each layer kept, (B, K).
    measure : bool
        Measure retrieval as serving has it: score all M rules, force none, and let the prompt choose what the layers
        keep, never the answer's words. Without gradients through the scores.
    """

    def __init__(
        self,
        adapter: RuleAdapter | nn.Module,
        prompt_queries: bool = False,
        all_rules: bool = False,
        steps: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(adapter)
        self.prompt_queries, self.all_rules, self.steps = prompt_queries, all_rules, steps
        self.measure = False
        self.scores: StepScores | None = None
        self.kept: dict[int, Tensor] = {}
        self._loaded: RuleBatch | None = None
        self._of_steps: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def batch(self) -> RuleBatch:
        """What was loaded."""
        assert self._loaded is not None
        return self._loaded

    def load(self, batch: RuleBatch | None) -> None:
        """Set the next forward's rules; None for no rules: the base model alone."""
        self._loaded = batch
        self.prompts = next(PROMPTS), 0  # gradients of the last forward are no more to be had

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Forget the last forward's scores and selections."""
        super().begin(input_ids, attention_mask, past_length)
        if past_length:
            raise ValueError("a training memory reads whole sequences; generate with RuleMemory")
        self.scores, self.kept, self._of_steps = None, {}, None
        if self._loaded is None:
            return
        question_BT = self.batch.question_BT
        real_BT = torch.ones_like(question_BT) if attention_mask is None else attention_mask.bool()
        # The answer names the rules, and serving has not written it yet.
        self._choosing_BT = question_BT if self.prompt_queries or self.measure else real_BT

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules of the loaded batch."""
        return self._loaded is not None and len(self.batch.keys_MP) > 0

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, float | Tensor]:
        """Return what a layer keeps of the pool, and leave its scores behind."""
        projection = self.adapter[layer]
        # Gradient checkpointing runs this again in the backward pass: selections and scores stay the first ones.
        if layer not in self.kept:
            self.kept[layer] = self._select(layer, projection, query_BHTD)
        rows_BK = self.kept[layer]
        key_BKF, value_BKF = self._project(projection, rows_BK)
        if layer == self.config.confidence_layer:
            scores = self._score(projection, query_BHTD, key_BKF, rows_BK)
            self.scores = self.scores or scores
        visible_BTK: Tensor | None = None
        shift: float | Tensor = self.length_shift(rows_BK.shape[1])
        if self.steps is not None:  # stage 1 keeps the same rules in every layer
            self._of_steps = self._of_steps or self._as_found(rows_BK, self.steps)
            read_R, visible_BTK, shift = self._of_steps
            key_BKF, value_BKF = key_BKF[:, read_R], value_BKF[:, read_R]
        key_BHKD, value_BHKD = (projection.heads(side.to(query_BHTD)) for side in (key_BKF, value_BKF))
        return key_BHKD, value_BHKD, visible_BTK, shift

    def _as_found(self, rows_BK: Tensor, steps: Mapping[str, float]) -> tuple[Tensor, Tensor, Tensor]:
        """Return what a search before each step may have kept, and by how much each rule is weighed down.

        The R places that any token reads; which of them each token does, (B, T, R), none before a mark of the base's
        own; and what is added to their scores, (B, 1, T, R): nothing for one gold rule of the step, which a search has
        first, a little for further ones, and as much as a search would for others and those of later steps. Others are
        those that the confidence layer's query ranks first, where it is what finds; with ``score_weight`` its scores
        are what is added.
        """
        batch = self.batch
        places_T = torch.arange(batch.question_BT.shape[1], device=rows_BK.device)
        begun_BTS = (batch.search_BS[:, None] <= places_T[:, None]) & (batch.search_BS[:, None] >= 0)
        gold_BSK = (rows_BK[:, None, :, None] == batch.gold_BSG[:, :, None]).any(-1)
        random_BSK = torch.rand(gold_BSK.shape, device=rows_BK.device)
        first = (random_BSK * gold_BSK).argmax(-1, keepdim=True)
        first_BSK = torch.zeros_like(gold_BSK).scatter(-1, first, True)
        later_BSK = gold_BSK.flip(1).cumsum(1).flip(1) > 0
        later_BSK &= torch.rand_like(random_BSK[..., :1]) < steps["ahead"]
        other_BSK = ~gold_BSK.any(1, keepdim=True)
        found = None if self.config.own_mark or self.scores is None else self.scores.scores_BSK.detach()
        ranks_BSK = (random_BSK if found is None else found).masked_fill(~other_BSK, -math.inf)
        beside = ranks_BSK.topk(min(int(steps["beside"]), rows_BK.shape[1]), dim=-1).indices
        beside_BSK = other_BSK & torch.zeros_like(gold_BSK).scatter(-1, beside, True)
        read_BSK = gold_BSK | later_BSK | beside_BSK
        if self.config.own_mark:
            read_BSK[:, 0] = False
        elif self.config.search_place == "premise":
            # Of what the prompt finds no answer is read, but how rules look.
            read_BSK[:, 0] = beside_BSK[:, 0]
        if self.config.score_weight and found is not None:
            best_BS1 = found.masked_fill(~read_BSK, -math.inf).amax(-1, keepdim=True)
            shift_BSK = self.config.score_weight * (found - best_BS1)
        else:
            random_BSK = torch.rand_like(random_BSK)
            others_BSK = steps["from"] + (steps["to"] - steps["from"]) * random_BSK
            shift_BSK = -torch.where(gold_BSK, steps["spread"] * random_BSK * ~first_BSK, others_BSK)
        read_R = read_BSK.any((0, 1)).nonzero()[:, 0]
        rows_B1 = torch.arange(len(rows_BK), device=rows_BK.device)[:, None]
        step_BT = begun_BTS.sum(-1)
        read_BSR, shift_BSR = read_BSK[..., read_R], shift_BSK[..., read_R]
        return read_R, read_BSR[rows_B1, step_BT], shift_BSR[rows_B1, step_BT][:, None]

    def _keeps_all(self) -> bool:
        top_k = self.config.top_k
        return self.all_rules or top_k is None or top_k >= len(self.batch.keys_MP)

    def _all_rows(self, like_B: Tensor) -> Tensor:
        return torch.arange(len(self.batch.keys_MP), device=like_B.device).expand(len(like_B), -1)

    def _select(self, layer: int, projection: RuleProjection, query_BHTD: Tensor) -> Tensor:
        """Return the pool rows that each batch row keeps, (B, K)."""
        batch, config = self.batch, self.config
        if config.shares(layer):
            assert config.confidence_layer is not None
            return self.kept[config.confidence_layer]
        if self._keeps_all():
            return self._all_rows(query_BHTD)
        forced = layer == config.confidence_layer and not self.measure
        with torch.no_grad():
            query_BHD = mean_query(query_BHTD, self._choosing_BT)
            scale_M = projection.inverse_scale(batch.keys_MP)
            scores_BM = projection.score(query_BHD, batch.keys_MP, scale_M)
        return keep_top(scores_BM, config.top_k, batch.gold_BSG if forced else None)

    def _project(self, projection: RuleProjection, rows_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Project each rule that any row keeps once: (B, K, F) keys and values."""
        keys_MP, values_MP = self.batch.keys_MP, self.batch.values_MP
        if self._keeps_all():
            key_MF, value_MF = project(projection, keys_MP, values_MP)
            return key_MF.expand(len(rows_BK), -1, -1), value_MF.expand(len(rows_BK), -1, -1)
        union_U, place_BK = rows_BK.unique(return_inverse=True)
        key_UF, value_UF = project(projection, keys_MP[union_U], values_MP[union_U])
        embed = nn.functional.embedding  # its backward adds up rows faster than indexing's
        return embed(place_BK, key_UF), embed(place_BK, value_UF)

    def _score(
        self, projection: RuleProjection, query_BHTD: Tensor, key_BKF: Tensor, rows_BK: Tensor
    ) -> StepScores:
        batch = self.batch
        if self.measure:
            rows_BK = self._all_rows(rows_BK)
            with torch.no_grad():
                key_MF = projection.keys(batch.keys_MP.to(projection.k.weight.dtype))
            key_BKF = key_MF.expand(len(rows_BK), -1, -1)
        queries_BSHD = step_queries(query_BHTD, batch.question_BT, batch.search_BS)
        sequence_B1HD = mean_query(query_BHTD, self._choosing_BT)[:, None]
        scores = score_keys(torch.cat([queries_BSHD, sequence_B1HD], 1), key_BKF)
        # (B, S, K): padding, -1, is no row
        gold = (rows_BK[:, None, :, None] == batch.gold_BSG[:, :, None, :]).any(-1)
        return StepScores(scores[:, :-1], gold, scores[:, -1])


def step_queries(query_BHTD: Tensor, question_BT: Tensor, search_BS: Tensor) -> Tensor:
    """Return each step's query of equation 4, (B, 1 + S, H, D): the question's mean, then each ``<search>`` token's.

    Rows of missing steps (-1 in ``search_BS``) hold another token's query; such steps have no positives.
    """
    first_BHD = mean_query(query_BHTD, question_BT)
    rows = torch.arange(len(search_BS), device=search_BS.device)[:, None]
    later_BSHD = query_BHTD.transpose(1, 2)[rows, search_BS.clamp_min(0)].to(first_BHD.dtype)
    return torch.cat([first_BHD[:, None], later_BSHD], 1)


@torch.no_grad()
def keep_top(scores_BM: Tensor, top_k: int | None, gold_BSG: Tensor | None = None) -> Tensor:
    """Return the K pool rows each batch row keeps, best first: (B, K), equation 3.

    Gold rules (KeepDim; -1 is padding) are kept whatever their scores, and as many of the lowest-scored others dropped.
    A rule that is gold in several steps takes one place.
    """
    count = scores_BM.shape[-1]
    kept = count if top_k is None else min(top_k, count)
    if gold_BSG is None or not gold_BSG.numel():
        return scores_BM.topk(kept, dim=-1).indices
    flat = gold_BSG.flatten(1)
    # One more column takes the padding.
    gold_BM = torch.zeros(len(flat), count + 1, dtype=torch.bool, device=flat.device)
    gold_BM = gold_BM.scatter_(1, flat.where(flat >= 0, count), True)[:, :count]
    most = int(gold_BM.sum(-1).max())
    if most > kept:
        raise ValueError(
            f"a question has {most} gold rules but only {kept} rules are kept per layer; raise top_k to {most} or more"
        )
    ranked_BM = torch.where(gold_BM, float("inf"), scores_BM.float())
    rows_BK = ranked_BM.topk(kept, dim=-1).indices
    order_BK = scores_BM.gather(-1, rows_BK).argsort(dim=-1, descending=True, stable=True)
    return rows_BK.gather(-1, order_BK)
