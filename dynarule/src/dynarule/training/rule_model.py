"""A frozen model, its adapter and the row of ``<search>`` as one module that returns the training loss."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..base_model import attention_blocks
from ..memory.hooks import attach
from ..memory.selection import check_bank
from ..memory.training import RuleBatch, TrainingMemory
from .losses import IGNORE, lm_loss, stacked_step_loss, step_recall
from .optimizers import fold, whiten
from .recipe import Recipe


class RuleModel(nn.Module):
    """What the trainer trains: adapter and rows of ``<search>``, in fp32, which small learning rates need.

    The base is frozen, and no part of it: checkpoints hold what is trained alone.
    """

    def __init__(
        self,
        base: nn.Module,
        adapter: RuleAdapter,
        bank: RuleBank,
        recipe: Recipe,
        search_rows: Sequence[nn.Parameter] = (),
    ) -> None:
        super().__init__()
        check_bank(adapter, bank)
        if recipe.retrieves and adapter.config.confidence_layer is None:
            raise ValueError(
                "stage 2 trains the confidence layer, and the adapter's configuration names none; measure it after "
                "stage 1 (`dynarule confidence`) and set confidence_layer"
            )
        base.requires_grad_(False)
        last: Any = attention_blocks(base)[-1].o_proj
        with torch.enable_grad():  # layers that quantise what they read may cut the gradient, and say nothing
            like: Any = base
            read = torch.zeros(1, last.in_features, device=like.device, dtype=like.dtype, requires_grad=True)
            passes = last(read).requires_grad
        if not passes:
            raise ValueError(
                "no gradient passes the layers of this quantised base, so nothing below them would learn; train above "
                "a base in bf16, or one that is quantised by its weights alone, such as torchao's Int8WeightOnlyConfig "
                "(or bitsandbytes' 4 bits, which on a CPU must be loaded anew after they have answered)"
            )
        self.adapter = adapter.float().requires_grad_(False)
        self.search = nn.ParameterList(search_rows)
        for row in self.search:
            row.data = row.data.float()
            row.requires_grad_(True)
        self.recipe, self.bank = recipe, bank
        self._base: list[Any] = [base]  # in a list, so that it does not become a part of this module
        self.projections = list(adapter.projections().values())
        for projection in self.projections:
            for parameter in projection.trained_to_read():
                parameter.requires_grad_(True)
        steps, layer = recipe.steps, adapter.config.confidence_layer
        if steps is not None and layer is not None and not hasattr(adapter[layer], "reader"):
            adapter[layer].q.requires_grad_(False)  # the paper's query finds, too: it was trained by itself
            adapter[layer].k.requires_grad_(False)
        if "whiten" in recipe.additions:
            whiten(self.projections, bank)
        self.memory = TrainingMemory(adapter, recipe.pool_queries == "prompt", recipe.stage == 1, steps)

    @property
    def base(self) -> Any:
        """The model that reads the rules."""
        return self._base[0]

    def train(self, mode: bool = True) -> Self:
        """Set the mode, of the base too, which checkpoints its layers in training alone."""
        self.base.train(mode)
        return super().train(mode)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Keep hooks on the base through forward and backward, which recomputes layers under checkpointing."""
        with attach(self.base, self.memory):
            yield
        fold(self.projections)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        question_BT: Tensor,
        search_BS: Tensor,
        gold_BSG: Tensor,
        pool_M: Tensor,
    ) -> dict[str, Tensor]:
        """Return ``loss``, its parts ``lm``, ``retrieval``, and ``hits`` of ``steps`` for Recall@1."""
        device = input_ids.device
        self.memory.measure = not self.training
        rows = pool_M.to(self.bank.device)
        keys_MP, values_MP = self.bank.keys[rows].to(device), self.bank.values[rows].to(device)
        self.memory.load(RuleBatch(keys_MP, values_MP, question_BT, search_BS, gold_BSG))
        decoder, head = self.base.get_decoder(), self.base.get_output_embeddings()
        hidden_BTC = decoder(input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        # Logits of the answer's tokens alone: with 150,000 words they are most of a batch's memory.
        logits_NV = head(hidden_BTC[:, :-1][labels[:, 1:] != IGNORE])
        lm = lm_loss(logits_NV, labels, self.recipe.method == "kblam")
        out = {"lm": lm} | {name: lm.new_zeros(()) for name in ("retrieval", "hits", "steps")}
        if (scores := self.memory.scores) is not None:
            scores_BSK, gold_BSK = scores.scores_BSK, scores.positives_BSK
            hits, steps = step_recall(scores_BSK, gold_BSK)
            out["hits"], out["steps"] = hits.to(lm), steps.to(lm)
            if self.recipe.method == "srki":
                scores_BSK, gold_BSK = scores.sequence_BK[:, None], gold_BSK.any(1, keepdim=True)
            if self.recipe.retrieves:
                out["retrieval"] = stacked_step_loss(scores_BSK, gold_BSK, self.recipe.temperature)
        # Equation 5.
        out["loss"] = lm + self.recipe.retrieval_weight * out["retrieval"]
        return out
