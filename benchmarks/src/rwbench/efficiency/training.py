"""Cost of a training step with M rules against a step without: forward, backward and optimizer, in turns.

Both steps train the row of ``<search>``, so both go backward through all layers; the one with rules trains the adapter
too. A step is `accumulation` batches and one update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .settings import TORCH_NAMES, TrainingSettings
from .timing import ratios, spread, timed
from .workload import keyed, random_model

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 1.3
PARTS = ("forward", "backward", "optimizer")
Work = dict[str, Callable[[], Any]]
"""The parts of a step, by name."""


def make_batch(settings: TrainingSettings, rules: int) -> dict[str, Tensor]:
    """Return a batch as `dynarule.training.Collator` makes it, with two gold rules per step."""
    import torch

    stream, search_token = keyed(settings.seed, 7), settings.sizes.search_token
    size, prompt = (settings.batch, settings.tokens), settings.tokens // 2
    ids_BT = torch.from_numpy(stream.integers(0, search_token, size))
    width = (settings.tokens - prompt) // settings.steps
    places = torch.tensor([prompt + width * step for step in range(1, settings.steps)], dtype=torch.long)
    ids_BT[:, places] = search_token
    answer_BT = torch.zeros(size, dtype=torch.bool)
    answer_BT[:, prompt:] = True
    gold = torch.from_numpy(stream.permutation(settings.rules)[: 2 * settings.batch * settings.steps])
    gold_BSG = gold.view(settings.batch, settings.steps, 2)
    return {
        "input_ids": ids_BT,
        "attention_mask": torch.ones(size, dtype=torch.long),
        "labels": ids_BT.masked_fill(~answer_BT, -100),
        "question_BT": ~answer_BT,
        "answer_BT": answer_BT,
        "search_BS": places.expand(settings.batch, -1),
        "gold_BSG": gold_BSG if rules else torch.full_like(gold_BSG, -1),
        "pool_M": torch.arange(rules),
    }


def training_cost(settings: TrainingSettings) -> dict[str, Any]:
    """Measure steps without and with rules.

    Returns
    -------
    dict
        Per condition ms of each part and of a whole step, their ratio, and where the time goes by operation.
    """
    import torch

    torch.set_num_threads(settings.threads)
    conditions = {name: _step(settings, rules) for name, rules in (("without", 0), ("with", settings.rules))}
    for work in conditions.values():
        for part in PARTS:
            work[part]()
    found: dict[str, dict[str, list[float]]] = {name: {part: [] for part in PARTS} for name in conditions}
    for number in range(settings.repeats):
        for name in sorted(conditions, reverse=bool(number % 2)):
            for part in PARTS:
                pair = timed(conditions[name][part], settings.device)
                found[name][part].append(1e3 * pair[settings.by_cpu_time])
    for parts in found.values():
        parts["step"] = [
            settings.accumulation * (forward + backward) + optimizer
            for forward, backward, optimizer in zip(*(parts[part] for part in PARTS), strict=True)
        ]
    ratio = spread(ratios(found["with"]["step"], found["without"]["step"]))
    return {
        **{name: {part: spread(times) for part, times in parts.items()} for name, parts in found.items()},
        "ratio": ratio,
        "limit": LIMIT,
        "met": ratio["median"] <= LIMIT,
        "profile": _profile(conditions),
    }


def _step(settings: TrainingSettings, rules: int) -> Work:
    """Return the three parts of a step as functions."""
    import torch
    from dynarule.training import RuleModel, paper_recipe

    from dynarule import RuleAdapter, RuleBank, dynarule_config

    shape, device, dtype = settings.sizes, settings.device, getattr(torch, TORCH_NAMES[settings.dtype])
    model = random_model(shape, device, dtype, settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    keys_MP, values_MP = (
        torch.nn.functional.normalize(
            torch.randn(settings.rules, settings.encoder_dim, generator=generator), dim=-1
        ).to(device)
        for _ in range(2)
    )
    names = [str(row) for row in range(settings.rules)]
    config = dynarule_config(settings.encoder_dim, confidence_layer=shape.layers // 2, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config)
    rows = adapter.train_search(shape.search_token)
    bank = RuleBank(keys_MP, values_MP, names, names)
    whole = RuleModel(model, adapter, bank, paper_recipe(), rows).train()
    batch = {name: tensor.to(device) for name, tensor in make_batch(settings, rules).items()}
    optimizer = torch.optim.AdamW([p for p in whole.parameters() if p.requires_grad], lr=1e-4)
    held: dict[str, Tensor] = {}

    def forward() -> None:
        with whole.attached(), torch.autocast(device, dtype, enabled=settings.dtype != "fp32"):
            held["loss"] = whole(**batch)["loss"]

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"forward": forward, "backward": lambda: held.pop("loss").backward(), "optimizer": update}


def _profile(conditions: dict[str, Work], most: int = 12, repeats: int = 3) -> list[dict[str, Any]]:
    """Return the operations that take most time with rules, ms of one batch and update, both conditions.

    The profiler's clock counts what other processes take, so each condition is recorded a few times, in turns, and the
    recording with the least time in all is kept.
    """
    from torch.profiler import ProfilerActivity, profile

    times: dict[str, dict[str, float]] = {}
    for name, work in [*conditions.items()] * repeats:
        with profile(activities=[ProfilerActivity.CPU]) as record:
            for part in PARTS:
                work[part]()
        found = {event.key: event.self_cpu_time_total / 1e3 for event in record.key_averages()}
        if name not in times or sum(found.values()) < sum(times[name].values()):
            times[name] = found
    order = sorted(times["with"], key=lambda key: -times["with"][key])[:most]
    return [
        {"operation": key, **{name: round(times[name].get(key, 0.0), 2) for name in ("without", "with")}}
        for key in order
    ]
