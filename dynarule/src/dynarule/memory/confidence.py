r"""Which layer knows best: the entropy of rule attention per layer.

As in the paper: with :math:`\alpha^l_m` the softmax over the M rule keys alone,
:math:`H^l = -\sum_m \alpha^l_m \log \alpha^l_m`, taken for every head and question token, averaged over both within a
question, then over questions. The confidence layer is the one with the lowest mean.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..attention import AttendedRules
from ..bank.bank import RuleBank
from ..base_model import padded
from ..generation import pad_id
from ..projection import RuleProjection
from ..tokenizer import Prompt, encode_prompt
from .hooks import attach
from .serving import RuleMemory

ADVISED_QUESTIONS = 200
MOST_WEIGHTS = 1 << 26
"""Weights that are in memory at once: one for each rule, head and token."""


@dataclass(frozen=True)
class ConfidenceCurve:
    """Entropy of rule attention by layer, in nats, over questions."""

    layers: tuple[int, ...]  # that hold rules, 0-based
    mean: tuple[float, ...]
    std: tuple[float, ...]  # of one question 0
    questions: int
    rules: float  # M, the mean over banks

    @property
    def confidence_layer(self) -> int:
        """The 0-based layer of the lowest mean; the first of equals."""
        return self.layers[self.mean.index(min(self.mean))]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with the chosen layer, the convention and the entropy of uniform attention."""
        return asdict(self) | {
            "confidence_layer": self.confidence_layer,
            "layer_convention": "0-based",
            "uniform": math.log(self.rules),
        }


@torch.no_grad()
def measure_confidence(
    model: nn.Module,
    tokenizer: Any,
    bank: RuleBank | Sequence[RuleBank],
    prompts: Sequence[Prompt],
    batch_size: int = 8,
) -> ConfidenceCurve:
    """Measure the entropy of every layer's rule attention on questions, with the rules in place.

    Parameters
    ----------
    model, tokenizer
        As for `dynarule.generate`; the model with its adapter.
    bank : RuleBank, or one per prompt
        The paper injects 100 rules.
    prompts : sequence of str or of chat messages
        Questions that were not trained on; at least 200 are advised.
    batch_size : int
        Questions per forward; 1 where each has its own bank.

    Returns
    -------
    ConfidenceCurve
        Its ``confidence_layer`` belongs into the adapter's configuration.

    Raises
    ------
    ValueError
        If there is no prompt, a bank is empty, or a score is not finite.
    """
    if not prompts:
        raise ValueError("no prompts: the confidence layer is measured on questions")
    if len(prompts) < ADVISED_QUESTIONS:
        few = f"{len(prompts)} questions: the entropy curve is noisy below {ADVISED_QUESTIONS}"
        warnings.warn(few, stacklevel=2)
    if isinstance(bank, RuleBank):
        banks = [bank] * len(prompts)
    else:
        banks, batch_size = list(bank), 1
    if len(banks) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts but {len(banks)} banks; pass one bank, or one per prompt")
    if not all(map(len, banks)):
        raise ValueError("the bank is empty: with no rules there is no rule attention to measure")
    adapter, pad = RuleAdapter(model), pad_id(model, tokenizer)
    layers = tuple(map(int, adapter.layers))
    encoded = [encode_prompt(tokenizer, prompt, i) for i, prompt in enumerate(prompts)]
    columns = []
    for start in range(0, len(encoded), batch_size):
        batch = padded(encoded[start : start + batch_size], pad, "left")
        ids_BT, mask_BT = (part.to(model.device) for part in batch)  # type: ignore[arg-type]
        memory = _MeasuringMemory(adapter, banks[start])
        with attach(model, memory):
            model(ids_BT, attention_mask=mask_BT, use_cache=False, logits_to_keep=1)
        columns.append(torch.stack([memory.entropy[layer] for layer in layers]))
    entropy_LQ = torch.cat(columns, 1)
    infinite_L = (~torch.isfinite(entropy_LQ)).any(1)
    if bool(infinite_L.any()):
        layer = layers[int(infinite_L.nonzero()[0])]
        raise ValueError(f"layer {layer} has rule scores that are not finite; look for NaN in the adapter")
    mean, std = entropy_LQ.mean(1), entropy_LQ.std(1, correction=min(1, len(prompts) - 1))
    rules = sum(map(len, banks)) / len(banks)
    return ConfidenceCurve(layers, tuple(mean.tolist()), tuple(std.tolist()), len(prompts), rules)


class _MeasuringMemory(RuleMemory):
    """A memory that measures every layer when it reads questions: ``entropy`` (B,), by layer."""

    def __init__(self, adapter: RuleAdapter, bank: RuleBank) -> None:
        super().__init__(adapter, bank)
        self.entropy: dict[int, Tensor] = {}

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        rules = super().attended(layer, hidden_BTC, block)
        if rules is not None and rules.query_BHTD is not None and self._question_BT is not None:
            entropy_BHT = rule_entropy(self.adapter[layer], rules.query_BHTD, self.bank.keys_MP)
            weight_BT = self._question_BT.float()
            self.entropy[layer] = ((entropy_BHT.mean(1) * weight_BT).sum(-1) / weight_BT.sum(-1)).cpu()
        return rules


@torch.no_grad()
def rule_entropy(projection: RuleProjection, query_BHTD: Tensor, keys_MP: Tensor) -> Tensor:
    """Return the entropy of the softmax over all rules, in nats, fp32 (B, H, T)."""
    like = projection.k.weight
    key_HMD = projection.heads(projection.keys(keys_MP.to(like.device, like.dtype))).float()
    scale = math.sqrt(query_BHTD.shape[-1])
    tokens = max(1, MOST_WEIGHTS // key_HMD[..., 0].numel())

    def entropy(query_HSD: Tensor) -> Tensor:
        return torch.special.entr((query_HSD @ key_HMD.mT / scale).softmax(-1)).sum(-1)

    rows = [[entropy(part) for part in query_HTD.split(tokens, 1)] for query_HTD in query_BHTD.float()]
    return torch.stack([torch.cat(parts, 1) for parts in rows])
