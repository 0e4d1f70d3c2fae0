"""What serving and training share: the query that selects, and what attention reads of what is kept."""

import math
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..adapter import RuleAdapter
from ..attention import AttendedRules
from ..bank.bank import RuleBank
from ..config import DynaRuleConfig
from ..projection import RuleProjection

PROMPTS = count(1)


def mean_query(query_BHTD: Tensor, tokens_BT: Tensor) -> Tensor:
    """Average rule queries over some tokens of each row: (B, H, D), in at least fp32.

    The score is linear in the query, so the mean query scores a rule as the mean over tokens does.
    """
    weight = tokens_BT.to(torch.promote_types(query_BHTD.dtype, torch.float32))[:, None, :, None]
    return (query_BHTD.to(weight.dtype) * weight).sum(2) / weight.sum(2).clamp_min(1)


class LayerMemory:
    """Rules as the hooks of `dynarule.attach` read them; `RuleMemory` and `TrainingMemory` say which.

    Parameters
    ----------
    adapter : RuleAdapter, or a model with an adapter
        The projections.
    config : DynaRuleConfig or None
        Other settings than the adapter's own.

    Attributes
    ----------
    given : dict
        What the decoder was given for this forward, ``input_ids`` among it; empty where no forward runs.
    prompts : (int, int)
        Of what was read last without a cache: a number that no other has, and its rows.
    """

    def __init__(self, adapter: RuleAdapter | nn.Module, config: DynaRuleConfig | None = None) -> None:
        self.adapter = adapter if isinstance(adapter, RuleAdapter) else RuleAdapter(adapter)
        self.config = config or self.adapter.config
        self.config.validate()
        held, layer = self.adapter.config.layers(self.adapter.num_layers), self.config.confidence_layer
        if layer is not None and layer not in held:
            raise ValueError(f"confidence_layer must be one that holds rules ({held}), got {layer}")
        self._projections: dict[int, RuleProjection] = {}
        self.given: dict[str, Any] = {}
        self.prompts = 0, 0

    def begin(self, input_ids: Tensor, attention_mask: Tensor | None, past_length: int) -> None:
        """Take note of a forward's tokens, and of the projections that are active, before its layers run."""
        self._projections = self.adapter.projections()
        if not past_length:
            self.prompts = next(PROMPTS), len(input_ids)

    def inputs(self) -> dict[str, Any]:
        """Return what the decoder gets in the place of what it was given, after `begin`."""
        return dict(self.given)

    def end(self, output: Any) -> Any:
        """Return what the decoder is to return in the place of ``output``; None: the same."""
        self.given = {}

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules in this forward."""
        raise NotImplementedError

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, float | Tensor]:
        """Return keys and values (B or 1, H, R, D), what is visible (B, T, R) or None, and what is added to scores."""
        raise NotImplementedError

    def length_shift(self, count: int) -> float:
        """Return what is added to the scores of rules of which a token reads so many."""
        shift = self.config.length_shift
        return 0.0 if shift is None else math.log(shift) - math.log(count)

    def attended(self, layer: int, hidden_BTC: Tensor, block: nn.Module) -> AttendedRules | None:
        """Return what a layer's attention reads besides the text; None if it holds no rules."""
        projection = self._projections.get(layer)
        if projection is None or not self.holds(layer):
            return None
        query_BHTD = projection.query(hidden_BTC, getattr(block, "q_norm", None))
        key_BHRD, value_BHRD, visible_BTR, shift = self.rules(layer, query_BHTD)
        key_BHRD, value_BHRD = key_BHRD.to(query_BHTD.dtype), value_BHRD.to(query_BHTD.dtype)
        return AttendedRules(query_BHTD, key_BHRD, value_BHRD, visible_BTR, shift)


def check_bank(adapter: RuleAdapter, bank: RuleBank) -> None:
    """Raise ValueError if a bank was not built with the encoder that an adapter reads."""
    if bank.encoder_dim != adapter.config.encoder_dim:
        raise ValueError(
            f"the bank's embeddings have width {bank.encoder_dim}, the adapter reads {adapter.config.encoder_dim}; "
            "build the bank with the encoder the adapter was trained with"
        )
    if adapter.config.encoder and bank.encoder and adapter.config.encoder != bank.encoder:
        raise ValueError(
            f"the bank was built with encoder {bank.encoder!r}, the adapter was trained with "
            f"{adapter.config.encoder!r}; build the bank with the adapter's encoder"
        )


def project(projection: RuleProjection, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Project embeddings of rules (..., P) to a layer's keys and values (..., F), in the adapter's dtype.

    Without autocast: embeddings are much alike, and halves would round away what tells one rule from the next.
    """
    with torch.autocast(keys.device.type, enabled=False):
        dtype = projection.k.weight.dtype
        return projection.keys(keys.to(dtype)), projection.values(values.to(dtype))
