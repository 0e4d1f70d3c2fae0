"""What an index finds of exact search, and how fast, on RuleWorld's rules and questions through a trained projection.

Rules and questions are embedded by MiniLM (cached). Questions stand for hidden states: a `RuleProjection` learns, in
seconds, to score a question's gold rules above others, and the held-out questions' queries in encoder space are what
the indexes are asked. Beyond the world's own rules, more are drawn between two real rules of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .settings import RecallSettings
from .workload import keyed

if TYPE_CHECKING:
    from dynarule.projection import RuleProjection
    from torch import Tensor

Encode = Callable[[Sequence[str]], np.ndarray]
INDEXES: dict[str, dict[str, Any] | None] = {
    "exact": None,
    "8 bits, 256 clusters read": {"kind": "ivf_sq8", "nprobe": 256},
    "8 bits, 512 clusters read": {"kind": "ivf_sq8", "nprobe": 512},
    "8 bits, 1,024 clusters read": {"kind": "ivf_sq8", "nprobe": 1_024},
    "fast scan, 1,024 clusters read": {"kind": "fastscan", "nprobe": 1_024},
}


def index_recall(settings: RecallSettings, encode: Encode) -> dict[str, Any]:
    """Embed, train, and measure every index; ``encode`` returns the embeddings of texts, (n, P) float32.

    Returns
    -------
    dict
        Numbers of real and drawn rules, Recall@1 of the gold rules by exact search, and a cell per index.
    """
    import torch
    from dynarule.bank import FaissIndex, QueryBatch, faiss_installed, measure_recall

    from .methods import set_faiss_threads

    torch.set_num_threads(settings.threads)
    set_faiss_threads(settings.threads)
    stream = keyed(settings.seed, settings.rules)
    rules_MP, texts_QP, gold_Q = _embedded(settings, encode, stream)
    held_out = slice(len(texts_QP) - settings.questions, None)
    trained = slice(held_out.start)
    projection = _train(settings, texts_QP[trained], gold_Q[trained], rules_MP)
    with torch.no_grad():
        query_QHD = projection.query(texts_QP[held_out, None])[:, :, 0]
    first_Q1 = _bank(rules_MP).search(projection, query_QHD, 1)[1].cpu()
    bank = _bank(torch.cat([rules_MP, _drawn(rules_MP, settings.rules - len(rules_MP), stream)]))
    scale_M = bank.inverse_scale(projection)
    asked = [QueryBatch(*projection.encoder_query(one[None]), scale_M) for one in query_QHD]
    clock = time.process_time if settings.by_cpu_time else time.perf_counter
    cells: list[dict[str, Any]] = []
    for name, choice in INDEXES.items():
        if choice is not None and not faiss_installed():
            cells.append({"index": name, "status": "not_run", "note": "pip install 'dynarule[faiss-cpu]'"})
            continue
        started = clock()
        index = bank.index if choice is None else FaissIndex(bank, **choice)
        built = clock() - started
        report = measure_recall(bank, asked, index, (1, 10, 100), clock)
        cells.append(
            {
                "index": name,
                "status": "ok",
                "recall": {str(k): round(value, 4) for k, value in report.recall.items()},
                "worst": round(report.worst, 4),
                "ms": round(report.index_ms, 3),
                "exact_ms": round(report.exact_ms, 3),
                "build_s": round(built, 2),
                "bytes_per_rule": index.bytes_per_rule if isinstance(index, FaissIndex) else 0,
            }
        )
    return {
        "real_rules": len(rules_MP),
        "drawn_rules": len(bank) - len(rules_MP),
        "queries": len(asked),
        "gold_recall_at_1": round(float((first_Q1[:, 0] == gold_Q[held_out]).float().mean()), 4),
        "cells": cells,
    }


def _embedded(
    settings: RecallSettings, encode: Encode, stream: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rules (M, P), questions (Q, P), the held-out ones last, and the row of each question's gold rule (Q,)."""
    import torch
    from ruleworld_data.spec import SUBTASKS

    from ..run.data import DataSource

    def embed(texts: list[str]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(encode(texts))).float()

    source = DataSource(settings.scale, settings.seed)
    table = source.rules("train")
    kept = table.ids[np.sort(stream.permutation(len(table.ids))[: settings.rules])]
    place = {int(rule): row for row, rule in enumerate(kept)}
    questions = [q for subtask in SUBTASKS for q in source.questions(subtask, "train")]
    # The first step's rules: later steps are searched with another query.
    pairs = [(q.text, place[q.gold_steps[0][0]]) for q in questions if q.gold_steps[0][0] in place]
    pairs = [pairs[row] for row in stream.permutation(len(pairs))[: settings.training + settings.questions]]
    if len(pairs) <= settings.questions:
        raise ValueError(
            f"only {len(pairs)} questions of scale {settings.scale} have a gold rule among the {len(kept)} rules, "
            f"--questions asks for {settings.questions}; lower it or raise --rules"
        )
    rules = embed(table.texts(kept, "nl"))
    return rules, embed([text for text, _ in pairs]), torch.tensor([row for _, row in pairs])


def _bank(rules_MP: Tensor) -> Any:
    from dynarule import RuleBank

    names = [str(row) for row in range(len(rules_MP))]
    return RuleBank(rules_MP, rules_MP, names, names)


def _train(settings: RecallSettings, texts_QP: Tensor, gold_Q: Tensor, rules_MP: Tensor) -> RuleProjection:
    """Train a projection to score a question's gold rule above those of others and random ones (equation 5)."""
    import torch
    from dynarule.projection import RuleProjection, score_keys
    from dynarule.training import stacked_step_loss

    width = rules_MP.shape[1]
    torch.manual_seed(settings.seed)
    block = torch.nn.Module()
    block.q_proj, block.head_dim = torch.nn.Linear(width, 512, bias=False), 64  # type: ignore[assignment]
    projection = RuleProjection(block, width)
    optimizer = torch.optim.AdamW(projection.parameters(), lr=1e-3)
    stream = keyed(settings.seed, 1)
    for _ in range(settings.train_steps):
        rows = torch.from_numpy(stream.integers(0, len(texts_QP), 64))
        others = torch.from_numpy(stream.integers(0, len(rules_MP), 448))
        pool = torch.cat([gold_Q[rows], others])
        query_BSHD = projection.query(texts_QP[rows][:, None]).transpose(1, 2)
        keys_BKF = projection.keys(rules_MP[pool]).expand(len(rows), -1, -1)
        positive_BSK = (pool[None, :] == gold_Q[rows][:, None])[:, None]
        loss = stacked_step_loss(score_keys(query_BSHD, keys_BKF), positive_BSK)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return projection.requires_grad_(False)


def _drawn(rules_MP: Tensor, count: int, stream: np.random.Generator) -> Tensor:
    """Return unit vectors between two real rules each, at a random place."""
    import torch

    if count <= 0:
        return rules_MP[:0]
    ends = torch.from_numpy(stream.integers(0, len(rules_MP), (2, count)))
    share = torch.from_numpy(stream.random((count, 1), dtype=np.float32))
    return torch.nn.functional.normalize(torch.lerp(rules_MP[ends[0]], rules_MP[ends[1]], share), dim=-1)
