"""The methods that are timed against the base model, each made ready for M random rules."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynarule.memory import LayerMemory
from dynarule.plus import RuleStates, TokenMemory

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config

from .settings import BYTES, PLUS, TOGETHER, Cell, Settings
from .workload import random_rows, random_tokens, timed

if TYPE_CHECKING:
    from torch import Tensor

    Side = tuple[Tensor, Tensor | None]

Seconds = tuple[float, float]
"""Wall and CPU."""


@dataclass
class Condition:
    """A prompt and the way it is read: by the base model alone, or with a method's rules."""

    model: Any  # of transformers; base and method share its weights
    prompt: Tensor  # (1, T) tokens
    attached: Callable[[], AbstractContextManager[Any]] = nullcontext  # in it the model is the method's
    searches: bool = False  # whether it has a <search> token to time
    facts: dict[str, Any] = field(default_factory=dict)  # such as bytes per rule
    cold: Callable[[], Condition] | None = None  # the same with no rule read before
    times: defaultdict[str, list[Seconds]] = field(
        default_factory=lambda: defaultdict(list)
    )  # ttft, decode, search

    def prefill(self, device: str) -> Seconds:
        """Read the prompt into a new cache and choose the first token."""
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self.model.config)
        return self.step(self.prompt, device)

    def step(self, ids: Tensor, device: str) -> Seconds:
        """Read more tokens, (1, T), and choose the next."""
        import torch

        def work() -> None:
            logits = self.model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
            logits.argmax(-1)

        with torch.inference_mode(), self.attached():
            return timed(work, device)


class InjectedRules(LayerMemory):
    """All rules in attention, as KBLaM serves them.

    Keys and values are projected once, as a server would before the first prompt, and lie in memory as attention reads
    them: (1, H, M, D) per layer.
    """

    def __init__(self, adapter: RuleAdapter, keys_MP: Tensor, values_MP: Tensor) -> None:
        super().__init__(adapter)
        self._rules: dict[int, tuple[Tensor, Tensor]] = {}
        for layer in adapter.config.layers(adapter.num_layers):
            projection = adapter[layer]
            dtype = projection.k.weight.dtype
            key_1HMD = projection.heads(projection.keys(keys_MP.to(dtype))[None]).contiguous()
            value_1HMD = projection.heads(projection.values(values_MP.to(dtype))[None]).contiguous()
            self._rules[layer] = key_1HMD, value_1HMD

    def holds(self, layer: int) -> bool:
        """Return whether a layer reads rules."""
        return layer in self._rules

    def rules(self, layer: int, query_BHTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None, float]:
        """Return all rules of a layer, each visible to every token."""
        key_1HMD, value_1HMD = self._rules[layer]
        return key_1HMD, value_1HMD, None, self.length_shift(key_1HMD.shape[2])

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(tensor.nbytes for pair in self._rules.values() for tensor in pair)


def build(settings: Settings, cell: Cell, base: Condition, cache: Path) -> Condition:
    """Return a cell's method, ready for its number of rules; ``cache`` is the folder of random embeddings."""
    if cell.method == "prompting":
        return _prompting(settings, cell, base)
    sides = [
        _side(settings, cell.rules, shared, settings.seed + key, cache)
        for key, shared in enumerate((settings.premises, settings.conclusions))
    ]
    # A copy of the modules over the same weights, since the adapter becomes a part of its model.
    model = copy.deepcopy(base.model, {id(weight): weight for weight in base.model.parameters()})
    if cell.method == "dynarule":
        return _dynarule(settings, model, base.prompt, _bank(sides, cell.rules))
    if cell.method in ("dynarule-plus", "dynarule-plus-together"):
        together = cell.method == "dynarule-plus-together"
        return _plus(settings, model, base.prompt, _bank(sides, cell.rules), together)
    every = 1 if cell.method == "inject-all" else 3
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    rules = InjectedRules(adapter, *(rows if place is None else rows[place] for rows, place in sides))
    size = {"keys and values": rules.nbytes / cell.rules}
    return Condition(model, base.prompt, lambda: attach(model, rules), facts={"bytes_per_rule": size})


def _prompting(settings: Settings, cell: Cell, base: Condition) -> Condition:
    import torch

    shape, count = settings.sizes, cell.rules * settings.tokens_per_rule
    rules = random_tokens(count, shape.search_token, settings.seed + 1, settings.device)
    per_token = 2 * shape.layers * shape.kv_heads * shape.hidden // shape.heads * BYTES[settings.dtype]
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Condition(base.model, torch.cat([rules, base.prompt], 1), facts={"bytes_per_rule": size})


def _side(settings: Settings, rules: int, shared: int, key: int, cache: Path) -> Side:
    """Return random embeddings, and which of them each rule has where there are fewer than rules; None: its own."""
    own = not 0 < shared < rules
    count = rules if own else shared
    rows = random_rows(cache, count, settings.encoder_dim, settings.embeddings, key).to(settings.device)
    return rows, None if own else random_tokens(rules, shared, key, settings.device)[0].int()


def _bank(sides: Sequence[Side], rules: int) -> RuleBank:
    """Return a bank of rules with these embeddings, each with a text of its own."""
    (keys_UP, key_rows_M), (values_VP, value_rows_M) = sides
    names = [str(row) for row in range(rules)]
    return RuleBank(
        keys_UP, values_VP, names, [f"rule {name}" for name in names], "", value_rows_M, key_rows_M
    )


def _bytes_per_rule(bank: RuleBank) -> float:
    """Return the bytes of embeddings, and of the numbers that say which a rule shares."""
    sides = (bank.keys, bank.values)
    return sum(side.different.nbytes + 4 * side.shared * len(bank) for side in sides) / len(bank)


def _dynarule(settings: Settings, model: Any, prompt: Tensor, bank: RuleBank) -> Condition:
    import torch

    count, shape = len(bank), settings.sizes
    config = dynarule_config(settings.encoder_dim, confidence_layer=shape.layers // 2, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config).requires_grad_(False)
    memory = RuleMemory(adapter, bank, shape.search_token)
    facts: dict[str, Any] = {"bytes_per_rule": {}}
    if count:
        scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
        facts["bytes_per_rule"] = {"embeddings": _bytes_per_rule(bank), "1/sigma": scales / count}
    return Condition(model, prompt, lambda: attach(model, memory), searches=bool(count), facts=facts)


class _RuleTokens:
    """A tokenizer of rules that gives each its own random tokens."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, text: str | list[str], **_: Any) -> dict[str, Any]:
        """Return the ids of one text, or of several."""
        if isinstance(text, str):
            return {"input_ids": self._ids(text)}
        return {"input_ids": [self._ids(one) for one in text]}

    def _ids(self, text: str) -> list[int]:
        count, below = self.settings.tokens_per_rule, self.settings.sizes.search_token
        keys = (self.settings.seed + 2 + int(line.split()[-1]) for line in text.splitlines())
        return [int(token) for key in keys for token in random_tokens(count, below, key, "cpu")[0]]


def _plus(settings: Settings, model: Any, prompt: Tensor, bank: RuleBank, together: bool) -> Condition:
    """Return DynaRule+ whose rules were read before, and a cold one whose rules are new.

    Rules that are read together are read anew at every search: a set seldom comes twice.
    """
    import torch

    torch.manual_seed(settings.seed)
    layer = min(PLUS["confidence_layer"], settings.sizes.layers - 1)
    options = PLUS | (TOGETHER if together else {}) | {"confidence_layer": layer, "first_layer": layer}
    adapter = RuleAdapter(model, dynarule_config(settings.encoder_dim, **options)).requires_grad_(False)

    def fresh() -> Condition:
        states = RuleStates(model, _RuleTokens(settings), **{"most": 0} if together else {})
        memory = TokenMemory(adapter, bank, states, settings.sizes.search_token)
        return Condition(model, prompt, lambda: attach(model, memory), searches=True)

    warm = fresh()
    warm.facts = {"bytes_per_rule": {"embeddings": _bytes_per_rule(bank)}}
    warm.cold = None if together else fresh
    return warm
