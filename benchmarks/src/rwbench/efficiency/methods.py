"""Each method made ready to be timed: with M random rules, at the sizes of a model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dynarule.bank import FaissIndex, use_index
from dynarule.plus import RuleStates, TokenMemory

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config

from .conditions import Condition, InjectedRules, RecordingBank
from .settings import DTYPES, PLUS, TOGETHER, Cell, ServingSettings
from .timing import spread, timed
from .workload import random_rows, random_tokens

if TYPE_CHECKING:
    from torch import Tensor

    Side = tuple[Tensor, Tensor | None]

Bank = TypeVar("Bank", bound=RuleBank)


def build(settings: ServingSettings, cell: Cell, base: Condition, cache: Path) -> Condition:
    """Return a cell's method, made ready for its number of rules."""
    if cell.method == "prompting":
        return _prompting(settings, cell, base)
    sides = [
        _side(settings, cell.rules, shared, settings.seed + which, cache)
        for which, shared in enumerate((settings.premises, settings.conclusions))
    ]
    # A model of its own over the same weights: the adapter becomes a part of it.
    model = copy.deepcopy(base.model, {id(weight): weight for weight in base.model.parameters()})
    if cell.method == "dynarule":
        return _dynarule(settings, model, base.prompt, _bank(RecordingBank, sides, cell.rules))
    if cell.method in ("dynarule-plus", "dynarule-plus-together"):
        together = cell.method == "dynarule-plus-together"
        return _plus(settings, model, base.prompt, _bank(RuleBank, sides, cell.rules), together)
    every = 1 if cell.method == "inject-all" else 3
    adapter = RuleAdapter(model, kblam_config(settings.encoder_dim, every=every)).requires_grad_(False)
    rules = InjectedRules(adapter, *(rows if at is None else rows[at] for rows, at in sides))
    return Condition(
        model,
        base.prompt,
        lambda: attach(model, rules),
        figures=lambda: {"bytes_per_rule": {"keys and values": rules.nbytes / cell.rules}},
    )


def _prompting(settings: ServingSettings, cell: Cell, base: Condition) -> Condition:
    import torch

    shape, count = settings.sizes, cell.rules * settings.tokens_per_rule
    rules = random_tokens(count, shape.search_token, settings.seed + 1, settings.device)
    per_token = 2 * shape.layers * shape.kv_heads * shape.hidden // shape.heads * DTYPES[settings.dtype]
    size = {"KV cache": float(per_token * settings.tokens_per_rule)}
    return Condition(base.model, torch.cat([rules, base.prompt], 1), figures=lambda: {"bytes_per_rule": size})


def _side(settings: ServingSettings, rules: int, shared: int, key: int, cache: Path) -> Side:
    """Return random embeddings, and which of them each rule has where there are fewer than rules; None: its own."""
    own = not 0 < shared < rules
    count = rules if own else shared
    rows = random_rows(cache, count, settings.encoder_dim, settings.embeddings, key).to(settings.device)
    return rows, None if own else random_tokens(rules, shared, key, settings.device)[0].int()


def _bank(kind: type[Bank], sides: Sequence[Side], rules: int) -> Bank:
    """Return a bank of rules with these embeddings, each with a text of its own."""
    (keys_UP, key_rows_M), (values_VP, value_rows_M) = sides
    names = [str(row) for row in range(rules)]
    return kind(keys_UP, values_VP, names, [f"rule {name}" for name in names], "", value_rows_M, key_rows_M)


def _bytes_per_rule(bank: RuleBank) -> float:
    """Return the bytes of embeddings, and of saying which a rule has where it shares them."""
    sides = (bank.keys, bank.values)
    return sum(side.different.whole().nbytes + 4 * side.shared * len(bank) for side in sides) / len(bank)


def _dynarule(settings: ServingSettings, model: Any, prompt: Tensor, bank: RecordingBank) -> Condition:
    import torch

    count, shape = len(bank), settings.sizes
    config = dynarule_config(settings.encoder_dim, confidence_layer=shape.layers // 2, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config).requires_grad_(False)
    set_faiss_threads(settings.threads)
    index = use_index(bank) if count else bank.index
    memory = RuleMemory(adapter, bank, shape.search_token)
    condition = Condition(model, prompt, lambda: attach(model, memory), searches=bool(count))

    def figures() -> dict[str, Any]:
        faiss = index if isinstance(index, FaissIndex) else None
        found: dict[str, Any] = {"index": faiss.kind if faiss else "exact", "bytes_per_rule": {}}
        if count:
            found["select_ms"] = _selection(settings, condition, bank)
            scales = sum(bank.inverse_scale(adapter[layer]).nbytes for layer in range(adapter.num_layers))
            sizes = {"embeddings": _bytes_per_rule(bank), "1/sigma": scales / count}
            if faiss:
                sizes["index codes and ids"] = float(faiss.bytes_per_rule)
            found["bytes_per_rule"] = sizes
        return found

    condition.figures = figures
    return condition


class _RuleTokens:
    """A tokenizer of rules that gives each its own random tokens."""

    def __init__(self, settings: ServingSettings) -> None:
        self.settings = settings

    def __call__(self, text: str | list[str], **_: Any) -> dict[str, Any]:
        """Return ids of one text, or of each."""
        ids = [self._ids(each) for each in ([text] if isinstance(text, str) else text)]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}

    def _ids(self, text: str) -> list[int]:
        count, below = self.settings.tokens_per_rule, self.settings.sizes.search_token
        keys = (self.settings.seed + 2 + int(line.split()[-1]) for line in text.splitlines())
        return [int(token) for key in keys for token in random_tokens(count, below, key, "cpu")[0]]


def _plus(
    settings: ServingSettings,
    model: Any,
    prompt: Tensor,
    bank: RuleBank,
    together: bool,
) -> Condition:
    """DynaRule+ whose rules were read before, as those that are asked for again and again were.

    Rules that are read together are read anew whenever they are found: a set seldom comes twice.
    """
    import torch

    shape = settings.sizes
    torch.manual_seed(settings.seed)
    layer = min(PLUS["confidence_layer"], shape.layers - 1)
    options = PLUS | (TOGETHER if together else {}) | {"confidence_layer": layer, "first_layer": layer}
    config = dynarule_config(settings.encoder_dim, **options)
    adapter = RuleAdapter(model, config).requires_grad_(False)

    def memory() -> TokenMemory:
        states = RuleStates(model, _RuleTokens(settings), **{"most": 0} if together else {})
        return TokenMemory(adapter, bank, states, shape.search_token)

    warm = memory()
    condition = Condition(model, prompt, lambda: attach(model, warm), searches=True)

    def figures() -> dict[str, Any]:
        size = {"bytes_per_rule": {"embeddings": _bytes_per_rule(bank)}}
        if together:
            return size
        cold = []
        for _ in range(max(3, settings.repeats)):
            fresh = memory()
            once = Condition(model, prompt, lambda fresh=fresh: attach(model, fresh))  # type: ignore[misc]
            cold.append(1e3 * once.prefill(settings.device)[settings.by_cpu_time])
        return {"cold_ttft_ms": spread(cold)} | size

    condition.figures = figures
    return condition


def _selection(settings: ServingSettings, condition: Condition, bank: RecordingBank) -> dict[str, Any]:
    """Time the searches of one prefill again, all layers: queries moved to encoder space, the best K rules found."""
    import torch

    queries: list[tuple[Any, ...]] = []
    bank.asked = queries
    condition.prefill(settings.device)
    bank.asked = None

    def again() -> None:
        for query in queries:
            bank.search(*query)

    with torch.inference_mode():
        pairs = [timed(again, settings.device) for _ in range(max(3, settings.repeats))]
    return spread([1e3 * pair[settings.by_cpu_time] for pair in pairs])


def set_faiss_threads(threads: int) -> None:
    """Let faiss, where it is installed, use so many threads."""
    if find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(threads)
