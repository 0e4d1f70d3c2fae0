"""The methods that are timed against the base model, each made ready for M random rules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from dynarule.plus import RuleStates, TokenMemory
from torch import Tensor
from transformers import DynamicCache

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config

from .workload import BYTES, Settings, random_rows, random_tokens, timed

METHODS = {
    "dynarule": "DynaRule",
    "dynarule-plus": "DynaRule+",
    "dynarule-plus-together": "DynaRule+, rules read together",
    "prompting": "rules in the prompt",
    "inject-all": "all rules, every layer",
    "inject-third": "all rules, every third layer (KBLaM)",
}
EVERY = {"inject-all": 1, "inject-third": 3}
"""Methods that read all rules -> in every so many layers."""
PLUS: dict[str, Any] = {
    "confidence_layer": 2, "first_layer": 2, "shared_after": True, "reading": "tokens", "search_heads": 4,
    "search_offsets": 64, "lookahead": 4, "score_weight": 6.0, "score_limit": 4.0, "top_k": 16,
}  # fmt: skip
"""DynaRule+ as its recipe has it, the rules kept per search included."""
TOGETHER: dict[str, Any] = {"together": True, "search_tail": 24, "score_weight": 0.0, "score_limit": None}
"""What its recipe for a pretrained model has instead."""
MAX_GB = 8
"""Keys and values of all rules that need more are not tried."""


@dataclass
class Condition:
    """A prompt and the way it is read: by the base model alone, or with a method's rules."""

    model: Any  # of transformers; base and method share its weights
    prompt: Tensor  # (1, T) tokens
    attached: Callable[[], AbstractContextManager[Any]] = nullcontext  # in it the model is the method's
    searches: bool = False  # whether it has a <search> token to time
    bytes_per_rule: dict[str, float] = field(default_factory=dict)
    cold: Callable[[], Condition] | None = None  # the same with no rule read before

    def prefill(self, device: str) -> float:
        """Read the prompt into a new cache and choose the first token; return the ms."""
        self._cache = DynamicCache(config=self.model.config)
        return self.step(self.prompt, device)

    def step(self, ids: Tensor, device: str) -> float:
        """Read more tokens, (1, T), and choose the next; return the ms."""

        def work() -> None:
            logits = self.model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
            logits.argmax(-1)

        with torch.inference_mode(), self.attached():
            return timed(work, device)


class ProjectedRules(RuleMemory):
    """All rules in attention, as KBLaM serves them: their keys and values are projected once, for all prompts."""

    def __init__(self, adapter: RuleAdapter, bank: RuleBank) -> None:
        super().__init__(adapter, bank)
        self._projected: dict[int, tuple[Tensor, Tensor, Tensor | None, float | Tensor]] = {}

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules."""
        return True

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, float | Tensor]:
        """Return all rules of a layer, each visible to every token."""
        if layer not in self._projected:
            self._projected[layer] = super().rules(layer, query_BHTD)
        return self._projected[layer]


def projected_bytes(settings: Settings, every: int) -> int:
    """Return the bytes of a rule's keys and values in every so many layers."""
    config = settings.config
    layers = len(range(0, config.num_hidden_layers, every))
    return 2 * layers * config.hidden_size * BYTES[settings.dtype]


def obstacle(settings: Settings, method: str, rules: int) -> str | None:
    """Say why a method with so many rules cannot be measured here; None if it can."""
    if method == "prompting":
        tokens = settings.prompt_tokens + settings.tokens_per_rule * rules + settings.new_tokens
        if tokens > (context := settings.config.max_position_embeddings):
            return f"{tokens:,} tokens do not fit the context of {context:,}"
    elif method in EVERY:
        need = projected_bytes(settings, EVERY[method]) * rules / 1e9
        if need > MAX_GB:
            return f"keys and values need {need:,.1f} GB, allowed are {MAX_GB}"
    return None


def build(settings: Settings, method: str, rules: int, base: Condition, folder: Path) -> Condition:
    """Return a method, ready for a number of rules, whose random embeddings are written to a folder."""
    if method == "prompting":
        return _prompting(settings, rules, base)
    shared = (settings.premises, settings.conclusions)
    (keys_UP, key_rows_M), (values_VP, value_rows_M) = (
        _side(settings, rules, count, key, folder / str(key)) for key, count in enumerate(shared)
    )
    names = [str(row) for row in range(rules)]
    texts = [f"rule {name}" for name in names]
    bank = RuleBank(keys_UP, values_VP, names, texts, "", value_rows_M, key_rows_M)
    # A copy of the modules over the same weights, since the adapter becomes a part of its model.
    model = copy.deepcopy(base.model, {id(weight): weight for weight in base.model.parameters()})
    if method == "dynarule":
        return _dynarule(settings, model, base.prompt, bank)
    if method.startswith("dynarule-plus"):
        return _plus(settings, model, base.prompt, bank, method == "dynarule-plus-together")
    every = EVERY[method]
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    projected = ProjectedRules(adapter, bank)
    size = {"keys and values": float(projected_bytes(settings, every))}
    return Condition(model, base.prompt, lambda: attach(model, projected), bytes_per_rule=size)


def _prompting(settings: Settings, rules: int, base: Condition) -> Condition:
    count, config = rules * settings.tokens_per_rule, settings.config
    tokens = random_tokens(count, settings.search_token, settings.seed + 1, settings.device)
    width = config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * width * BYTES[settings.dtype]
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Condition(base.model, torch.cat([tokens, base.prompt], 1), bytes_per_rule=size)


def _side(settings: Settings, rules: int, shared: int, key: int, path: Path) -> tuple[Tensor, Tensor | None]:
    """Return random embeddings, and which of them each rule has where there are fewer than rules; None: its own."""
    own = not 0 < shared < rules
    count, key = rules if own else shared, settings.seed + key
    rows = random_rows(path, count, settings.encoder_dim, settings.embeddings, key).to(settings.device)
    return rows, None if own else random_tokens(rules, shared, key, settings.device)[0].int()


def _bytes_per_rule(bank: RuleBank) -> float:
    """Return the bytes of embeddings, and of the numbers that say which a rule shares."""
    sides = (bank.keys, bank.values)
    return sum(side.different.nbytes + 4 * side.shared * len(bank) for side in sides) / len(bank)


def _dynarule(settings: Settings, model: Any, prompt: Tensor, bank: RuleBank) -> Condition:
    size, middle = {}, model.config.num_hidden_layers // 2
    config = dynarule_config(settings.encoder_dim, confidence_layer=middle, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config).requires_grad_(False)
    memory = RuleMemory(adapter, bank, settings.search_token)
    if bank:
        scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
        size = {"embeddings": _bytes_per_rule(bank), "1/sigma": scales / len(bank)}
    return Condition(model, prompt, lambda: attach(model, memory), searches=bool(bank), bytes_per_rule=size)


def _plus(settings: Settings, model: Any, prompt: Tensor, bank: RuleBank, together: bool) -> Condition:
    """Return DynaRule+ whose rules were read before, and a cold one whose rules are new.

    Rules that are read together are read anew at every search: a set seldom comes twice.
    """
    torch.manual_seed(settings.seed)
    layer = min(PLUS["confidence_layer"], model.config.num_hidden_layers - 1)
    options = PLUS | (TOGETHER if together else {}) | {"confidence_layer": layer, "first_layer": layer}
    adapter = RuleAdapter(model, dynarule_config(settings.encoder_dim, **options)).requires_grad_(False)

    def rule_tokens(text: str) -> list[int]:
        count, below = settings.tokens_per_rule, settings.search_token
        keys = (settings.seed + 2 + int(line.split()[-1]) for line in text.splitlines())
        return [int(token) for key in keys for token in random_tokens(count, below, key, "cpu")[0]]

    def tokenizer(text: str | list[str], **_: Any) -> dict[str, Any]:
        """Give each rule random tokens of its own."""
        return {"input_ids": rule_tokens(text) if isinstance(text, str) else [*map(rule_tokens, text)]}

    def fresh() -> Condition:
        states = RuleStates(model, tokenizer, **{"most": 0} if together else {})
        memory = TokenMemory(adapter, bank, settings.search_token, states=states)
        return Condition(model, prompt, lambda: attach(model, memory), searches=True)

    warm = fresh()
    warm.bytes_per_rule = {"embeddings": _bytes_per_rule(bank)}
    warm.cold = None if together else fresh
    return warm
