"""A pretrained model learns to follow rules: low-rank changes of its upper layers, in the training of a base.

It reads and writes what a base that was trained here does, with its own tokenizer, and one of its spare special tokens
where a base has `STEP`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...models import base_folder
from ...models.added import taught_base
from .checkpoint import Tensors
from .documents import Writer
from .recipe import Lora
from .tokenizer import TokenVocabulary
from .train import BaseTrainer

NEAR = 0.1
"""Part of a row's length within which another row is its twin."""
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class TokenizerWriter(Writer):
    """Writes documents with a model's own tokenizer.

    Raises
    ------
    ValueError
        If the mark is no special token of it, or a line break is no token of its own.
    """

    def __init__(self, tokenizer: Any, mark: str, context_weight: float) -> None:
        self.tokenizer, self.context_weight = tokenizer, context_weight
        special = {token.content for token in tokenizer.added_tokens_decoder.values()}
        if mark not in special:
            raise ValueError(
                f"mark must be a special token of the model, got {mark!r}; there are {sorted(special)}"
            )
        lines = self.encode("A.\n\nB")
        if lines != [*self.encode("A."), *2 * self.encode("\n"), *self.encode("B")]:
            raise ValueError(
                "the model's tokenizer joins line breaks with what stands before them; it cannot be used"
            )
        (self.line,), (self.step,), self.end = self.encode("\n"), self.encode(mark), tokenizer.eos_token_id

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class LoraTrainer(BaseTrainer):
    """The training of a recipe with ``[lora]``; only the changes are trained and saved."""

    fuses = False

    def _begin(self, vocabulary: TokenVocabulary | None) -> tuple[Any, Writer]:
        from peft import LoraConfig, PeftModel, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer

        plan: Any = self.recipe.lora
        assert isinstance(plan, Lora)
        folder = base_folder(plan.model)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
        nn.Module.to(model, self.device)
        check_mark(model.get_output_embeddings().weight, plan.mark, tokenizer)
        torch.manual_seed(self.recipe.seed)
        layers = list(range(plan.first_layer, model.config.num_hidden_layers))
        changes = LoraConfig(
            r=plan.rank, lora_alpha=2 * plan.rank, target_modules=LINEAR, layers_to_transform=layers
        )
        writer = TokenizerWriter(tokenizer, plan.mark, self.recipe.context_weight)
        if plan.begin is None:
            return get_peft_model(model, changes), writer
        try:
            base = taught_base(Path(plan.begin))
        except FileNotFoundError as error:
            raise FileNotFoundError(f"begin = {plan.begin!r}: {error}; ship that training first") from None
        if base != folder:
            raise ValueError(f"begin = {plan.begin!r} was taught to {base}, the recipe teaches {folder}")
        begun = PeftModel.from_pretrained(model, plan.begin, is_trainable=True)
        known: Any = begun.peft_config["default"]
        if (known.r, sorted(known.layers_to_transform)) != (plan.rank, layers):
            raise ValueError(
                f"begin = {plan.begin!r} has rank {known.r} in layers {sorted(known.layers_to_transform)}, the recipe "
                f"has rank {plan.rank} in {layers}"
            )
        return nn.Module.to(begun, torch.float32), writer

    def _optimizers(self) -> tuple[tuple[torch.optim.Optimizer, float], ...]:
        trained = [each for each in self.model.parameters() if each.requires_grad]
        adam = torch.optim.AdamW(trained, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        return ((adam, self.recipe.adam_rate),)

    def _states(self, ids_BT: Tensor) -> Tensor:
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            last = self.model.get_base_model().model(ids_BT, use_cache=False).last_hidden_state
        return last.to(self.dtype)  # autocast leaves norms in float32

    def _weights(self) -> Tensors:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}

    def _set_weights(self, weights: Tensors) -> None:
        with torch.no_grad():
            for name, value in self._weights().items():
                value.copy_(weights[name])


def check_mark(output_VC: Tensor, mark: str, tokenizer: Any) -> None:
    """Raise ValueError if a model's output has another row that is about the mark's, so that it cannot write it.

    Special tokens that a pretraining never used have one row in common: whatever a state is, each of n twins gets at
    most 1 / n, and the loss of every mark stays at log n.
    """

    def twins(token: int) -> list[int]:
        apart_V = (output_VC - output_VC[token]).norm(dim=-1)
        return [int(i) for i in (apart_V < NEAR * output_VC[token].norm()).nonzero()[:, 0] if i != token]

    names = {token.content: i for i, token in tokenizer.added_tokens_decoder.items()}
    if mark in names and (found := twins(names[mark])):
        free = [n for n, i in names.items() if i not in (tokenizer.eos_token_id, tokenizer.pad_token_id)]
        raise ValueError(
            f"the model cannot write mark = {mark!r}: its output has the same row for {len(found)} other tokens, "
            f"such as {tokenizer.convert_ids_to_tokens(found[0])!r}; take one of "
            f"{[name for name in free if not twins(names[name])]}"
        )
