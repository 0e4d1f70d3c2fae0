r"""Which layer knows best: the entropy of rule attention per layer, and what each layer's top K keeps.

Entropy as in the paper: with :math:`\alpha^l_m` the softmax over the M rule keys alone,
:math:`H^l = -\sum_m \alpha^l_m \log \alpha^l_m`, taken for every head and question token, averaged over both within a
question, then over questions. The confidence layer is the one with the lowest mean.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..attention import AttendedRules
from ..bank.bank import RuleBank
from ..generation import Prompt, encode_prompt, left_pad, pad_id
from ..projection import RuleProjection
from .hooks import attach
from .selection import mean_query
from .serving import RuleMemory

ADVISED_QUESTIONS = 200


@dataclass(frozen=True)
class ConfidenceCurve:
    """Entropy of rule attention by layer, in nats.

    Attributes
    ----------
    layers : tuple of int
        The layers that hold rules, 0-based.
    mean, std : tuple of float
        Over questions; the spread is the sample standard deviation, 0 for one question.
    questions, rules : int
        Sample size, and M (the mean of the banks' sizes where questions had banks of their own).
    """

    layers: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    questions: int
    rules: float

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


@dataclass(frozen=True)
class RetentionCurve:
    """Share of a question's gold rules among the K rules that a layer keeps.

    Attributes
    ----------
    layers : tuple of int
        0-based.
    mean : tuple of float
        Over questions, in [0, 1].
    top_k, questions : int
        K, and the sample size.
    """

    layers: tuple[int, ...]
    mean: tuple[float, ...]
    top_k: int
    questions: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"layer_convention": "0-based"}


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
    if len(prompts) < ADVISED_QUESTIONS:
        warnings.warn(
            f"{len(prompts)} questions: the entropy curve is noisy below {ADVISED_QUESTIONS}", stacklevel=2
        )
    columns: list[Tensor] = []
    sizes: list[int] = []
    layers = tuple(map(int, RuleAdapter(model).layers))
    for own, entropy_LB in _read(model, tokenizer, bank, prompts, batch_size, _mean_entropy):
        columns.append(entropy_LB)
        sizes += [len(own)] * entropy_LB.shape[1]
    values_LQ = torch.cat(columns, 1)
    infinite_L = (~torch.isfinite(values_LQ)).any(1)
    if bool(infinite_L.any()):
        layer = layers[int(infinite_L.nonzero()[0])]
        raise ValueError(f"layer {layer} has rule scores that are not finite; look for NaN in the adapter")
    count = values_LQ.shape[1]
    spread = values_LQ.std(1) if count > 1 else torch.zeros(len(values_LQ))
    mean = values_LQ.mean(1)
    return ConfidenceCurve(layers, tuple(mean.tolist()), tuple(spread.tolist()), count, sum(sizes) / count)


def measure_retention(
    model: nn.Module,
    tokenizer: Any,
    bank: RuleBank | Sequence[RuleBank],
    prompts: Sequence[Prompt],
    gold_ids: Sequence[Sequence[str]],
    top_k: int | None = None,
    batch_size: int = 8,
) -> RetentionCurve:
    """Measure what share of the gold rules each layer's top K keeps when it reads the question.

    Parameters
    ----------
    model, tokenizer, bank, prompts, batch_size
        As for `measure_confidence`.
    gold_ids : sequence of sequences of str
        Ids of the rules that each question needs; all of them must be in its bank.
    top_k : int or None
        K; None takes the adapter's.

    Raises
    ------
    ValueError
        If a gold rule is not in the bank or a question has none.
    """
    adapter = RuleAdapter(model)
    count = top_k or adapter.config.top_k
    if count is None:
        raise ValueError(
            "this adapter keeps all rules (top_k is None); pass top_k to say how many to look at"
        )
    if len(gold_ids) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts but {len(gold_ids)} lists of gold rules")
    shares: list[Tensor] = []
    for own, scores_LBM in _read(model, tokenizer, bank, prompts, batch_size, _mean_scores):
        for scores_LM in scores_LBM.unbind(1):
            gold_G = _gold_rows(own, gold_ids[len(shares)], len(shares))
            best_LK = scores_LM.topk(min(count, len(own)), dim=-1).indices
            shares.append((best_LK[:, None] == gold_G[:, None]).any(-1).float().mean(-1))
    mean_L = torch.stack(shares).mean(0)
    return RetentionCurve(tuple(map(int, adapter.layers)), tuple(mean_L.tolist()), count, len(shares))


def _gold_rows(bank: RuleBank, ids: Sequence[str], question: int) -> Tensor:
    """Rows of a question's gold rules in its bank: (G,)."""
    if not ids:
        raise ValueError(f"question {question}: it has no gold rule")
    missing = sorted(set(ids).difference(bank.ids))
    if missing:
        raise ValueError(f"question {question}: gold rule {missing[0]!r} is not in its bank")
    return torch.tensor([bank.row(id) for id in sorted(set(ids))])


@torch.no_grad()
def rule_entropy(
    projection: RuleProjection, query_BHTD: Tensor, keys_MP: Tensor, block: int = 4096
) -> Tensor:
    """Return the entropy of the softmax over all rules, for every head and token, exactly.

    Keys are projected and scored block by block, with a running maximum, so memory does not grow with M.

    Parameters
    ----------
    projection : RuleProjection
        The layer.
    query_BHTD : Tensor
        Its rule queries.
    keys_MP : Tensor
        Embeddings of the rules.

    Returns
    -------
    Tensor, (B, H, T)
        In nats, fp32.
    """
    query = query_BHTD.float() / math.sqrt(query_BHTD.shape[-1])
    like = projection.k.weight
    top = torch.full(query.shape[:-1], -math.inf, device=query.device)
    total, weighted = torch.zeros_like(top), torch.zeros_like(top)  # sum of e^(s-top), of (s-top) e^(s-top)
    for rows in keys_MP.split(block):
        key_HRD = projection.heads(projection.keys(rows.to(like.device, like.dtype))).float()
        score = torch.einsum("bhtd,hrd->bhtr", query, key_HRD)
        new = torch.maximum(top, score.amax(-1))
        shift = torch.where(torch.isinf(top), 0.0, top - new)
        weighted = shift.exp() * (weighted + shift * total)
        total = shift.exp() * total
        score = score - new[..., None]
        power = score.exp()
        total, weighted, top = total + power.sum(-1), weighted + (power * score).sum(-1), new
    return total.log() - weighted / total


Measure = Callable[[RuleProjection, Tensor, Tensor, Tensor], Tensor]
"""A layer's projections, its rule queries (B, H, T, D), the rules' embeddings (M, P) and the question's tokens (B, T)
to one tensor with a row per question."""


def _mean_entropy(
    projection: RuleProjection, query_BHTD: Tensor, keys_MP: Tensor, question_BT: Tensor
) -> Tensor:
    """Mean entropy of each row's question tokens and heads: (B,)."""
    entropy_BT = rule_entropy(projection, query_BHTD, keys_MP).mean(1)
    weight_BT = question_BT.float()
    return (entropy_BT * weight_BT).sum(-1) / weight_BT.sum(-1)


def _mean_scores(
    projection: RuleProjection, query_BHTD: Tensor, keys_MP: Tensor, question_BT: Tensor
) -> Tensor:
    """The score of every rule for each row's mean question token: (B, M)."""
    mean_BHD = mean_query(query_BHTD, question_BT)
    return projection.score(mean_BHD, keys_MP, projection.inverse_scale(keys_MP))


class _MeasuringMemory(RuleMemory):
    """A memory that measures every layer when it reads a question."""

    def __init__(self, model: nn.Module, bank: RuleBank, measure: Measure) -> None:
        super().__init__(model, bank)
        self.measure = measure
        self.per_layer: dict[int, Tensor] = {}

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        rules = super().attended(layer, hidden_BTC, block)
        if rules is not None:
            assert self._question_BT is not None
            given = (self.adapter[layer], rules.query_BHTD, self.bank.keys_MP, self._question_BT)
            self.per_layer[layer] = self.measure(*given).cpu()
        return rules


@torch.no_grad()
def _read(
    model: nn.Module,
    tokenizer: Any,
    bank: RuleBank | Sequence[RuleBank],
    prompts: Sequence[Prompt],
    batch_size: int,
    measure: Measure,
) -> Iterator[tuple[RuleBank, Tensor]]:
    """Run the questions in batches; yield each batch's bank and what every layer measured, (L, B, ...)."""
    if not prompts:
        raise ValueError("no prompts: the confidence layer is measured on questions")
    banks = [bank] if isinstance(bank, RuleBank) else list(bank)
    if not isinstance(bank, RuleBank):
        batch_size = 1
        if len(banks) != len(prompts):
            raise ValueError(
                f"{len(prompts)} prompts but {len(banks)} banks; pass one bank, or one per prompt"
            )
    if any(not len(b) for b in banks):
        raise ValueError("the bank is empty: with no rules there is no rule attention to measure")
    pad = pad_id(model, tokenizer)
    encoded = [encode_prompt(tokenizer, prompt, i) for i, prompt in enumerate(prompts)]
    for start in range(0, len(encoded), batch_size):
        ids_BT, mask_BT = left_pad(encoded[start : start + batch_size], pad, model.device)  # type: ignore[arg-type]
        own = banks[0] if len(banks) == 1 else banks[start]
        memory = _MeasuringMemory(model, own, measure)
        with attach(model, memory):
            model(ids_BT, attention_mask=mask_BT, use_cache=False, logits_to_keep=1)
        yield own, torch.stack([memory.per_layer[layer] for layer in sorted(memory.per_layer)])
