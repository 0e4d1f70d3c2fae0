"""Cost of a training step with M rules against a step without: forward, backward and optimizer, in turns.

Both steps train the row of ``<search>``, so both go backward through all layers; the one with rules trains the adapter
too. A step is `accumulation` batches and one update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .machine import ratios, spread, timed
from .plan import TORCH_NAMES, TrainingSettings
from .shapes import ModelShape, random_model, shape_of

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 1.3
PARTS = ("forward", "backward", "optimizer")


def make_batch(settings: TrainingSettings, shape: ModelShape, rules: int) -> dict[str, Tensor]:
    """Return a batch as `dynarule.training.Collator` makes it, with two gold rules per step."""
    import torch

    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence((settings.seed, 7))))
    size, prompt = (settings.batch, settings.tokens), settings.tokens // 2
    ids = torch.from_numpy(stream.integers(0, shape.vocab - 1, size))
    width = (settings.tokens - prompt) // settings.steps
    places = torch.tensor([prompt + width * step for step in range(1, settings.steps)], dtype=torch.long)
    ids[:, places] = shape.vocab - 1
    answer = torch.zeros(size, dtype=torch.bool)
    answer[:, prompt:] = True
    gold = torch.from_numpy(stream.permutation(settings.rules)[: 2 * settings.batch * settings.steps])
    gold = gold.view(settings.batch, settings.steps, 2)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones(size, dtype=torch.long),
        "labels": ids.masked_fill(~answer, -100),
        "question_BT": ~answer,
        "answer_BT": answer,
        "search_BS": places.expand(settings.batch, -1),
        "gold_BSG": gold if rules else torch.full_like(gold, -1),
        "pool_M": torch.arange(rules),
    }


def training_cost(settings: TrainingSettings, profiled: bool = True) -> dict[str, Any]:
    """Measure steps without and with rules.

    Returns
    -------
    dict
        Per condition ms of each part and of a whole step, their ratio, and where the time goes by operation.
    """
    import torch

    torch.set_num_threads(settings.threads)
    conditions = {
        name: _trainer(settings, rules) for name, rules in (("without", 0), ("with", settings.rules))
    }
    for work in conditions.values():
        for part in PARTS:
            work[part]()
    found: dict[str, dict[str, list[float]]] = {name: {part: [] for part in PARTS} for name in conditions}
    column = settings.device == "cpu" and settings.threads == 1
    for number in range(settings.repeats):
        for name in sorted(conditions, reverse=bool(number % 2)):
            for part in PARTS:
                pair = timed(conditions[name][part], settings.device)
                found[name][part].append(1e3 * pair[column])
    whole = {
        name: [
            settings.accumulation * (forward + backward) + optimizer
            for forward, backward, optimizer in zip(*(parts[part] for part in PARTS), strict=True)
        ]
        for name, parts in found.items()
    }
    ratio = spread(ratios(whole["with"], whole["without"]))
    out: dict[str, Any] = {
        name: {part: spread(times) for part, times in parts.items()} | {"step": spread(whole[name])}
        for name, parts in found.items()
    }
    out |= {"ratio": ratio, "limit": LIMIT, "met": ratio["median"] <= LIMIT}
    if profiled:
        out["profile"] = _profile(conditions)
    return out


def _trainer(settings: TrainingSettings, rules: int) -> dict[str, Callable[[], Any]]:
    """Return the three parts of a step as functions."""
    import torch
    from dynarule.adapter import RuleAdapter
    from dynarule.bank.bank import RuleBank
    from dynarule.config import dynarule_config
    from dynarule.training import RuleModel, paper_recipe

    shape, device = shape_of(settings.shape), settings.device
    model = random_model(shape, device, getattr(torch, TORCH_NAMES[settings.dtype]), settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    keys, values = (
        torch.nn.functional.normalize(
            torch.randn(settings.rules, settings.encoder_dim, generator=generator), dim=-1
        ).to(device)
        for _ in range(2)
    )
    names = [str(row) for row in range(settings.rules)]
    config = dynarule_config(settings.encoder_dim, confidence_layer=shape.layers // 2, top_k=settings.top_k)
    torch.manual_seed(settings.seed)
    adapter = RuleAdapter(model, config)
    rows = adapter.train_search(shape.vocab - 1)
    whole = RuleModel(model, adapter, RuleBank(keys, values, names, names), paper_recipe(), rows).train()
    batch = {name: tensor.to(device) for name, tensor in make_batch(settings, shape, rules).items()}
    optimizer = torch.optim.AdamW([p for p in whole.parameters() if p.requires_grad], lr=1e-4)
    half = settings.dtype != "fp32"
    held: dict[str, Tensor] = {}

    def forward() -> None:
        with (
            whole.attached(),
            torch.autocast(device, getattr(torch, TORCH_NAMES[settings.dtype]), enabled=half),
        ):
            held["loss"] = whole(**batch)["loss"]

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"forward": forward, "backward": lambda: held.pop("loss").backward(), "optimizer": update}


def _profile(
    conditions: dict[str, dict[str, Callable[[], Any]]], most: int = 12, repeats: int = 3
) -> list[dict[str, Any]]:
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
