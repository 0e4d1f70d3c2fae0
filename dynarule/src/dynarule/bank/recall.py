"""Recall of an index against exact search, on queries that a model made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .index import ExactIndex, SearchIndex

if TYPE_CHECKING:
    from .bank import RuleBank


class QueryBatch(NamedTuple):
    """Arguments of `SearchIndex.search`, for replay."""

    direction_BP: Tensor
    offset_B: Tensor
    inverse_scale_M: Tensor


@dataclass(frozen=True)
class RecallReport:
    """An index measured against exact search.

    Attributes
    ----------
    queries : int
        How many were asked.
    recall : dict of int to float
        For each K, the mean share of the exact best K rules that are among the index's best K.
    worst : float
        The lowest such share of a single query, at the largest K.
    exact_ms, index_ms : float
        Milliseconds per query, on this machine, batched as the queries were.
    """

    queries: int
    recall: dict[int, float]
    worst: float
    exact_ms: float
    index_ms: float


def measure_recall(
    bank: RuleBank,
    queries: Sequence[QueryBatch],
    index: SearchIndex,
    ks: Sequence[int] = (1, 10, 100),
    clock: Callable[[], float] = time.perf_counter,
) -> RecallReport:
    """Ask an index and exact search the same queries, of a bank that has not changed since they were recorded.

    A rule with exactly the score of the K-th best counts as found: equal rules may come in any order. Where a machine
    is shared and one thread searches, the clock `time.process_time` counts only our work.

    Raises
    ------
    ValueError
        If there are no queries, a K does not fit, or the bank has changed in size.
    """
    if not queries:
        raise ValueError(
            "no queries to measure on; wrap bank.index in one that records them while the model generates"
        )
    if not ks or min(ks) < 1 or max(ks) > len(bank):
        raise ValueError(f"every k must be 1 to {len(bank)}, the rules of the bank; got {list(ks)}")
    most = max(ks)
    hits: dict[int, list[Tensor]] = {k: [] for k in ks}
    seconds = [0.0, 0.0]
    for batch in queries:
        if len(batch.inverse_scale_M) != len(bank):
            raise ValueError(
                f"the queries were recorded with {len(batch.inverse_scale_M)} rules, the bank holds {len(bank)} now"
            )
        answers = []
        for number, searched in enumerate((ExactIndex(), index)):
            start = clock()
            answers.append(searched.search(bank, *batch, most))
            seconds[number] += clock() - start
        (true_BK, true_rows), (scores_BK, rows_BK) = answers
        for k in ks:
            same = (rows_BK[:, :k, None] == true_rows[:, None, :k]).any(-1)
            tied = scores_BK[:, :k] >= true_BK[:, k - 1 : k]
            hits[k].append((same | tied).float().mean(-1).cpu())
    count = sum(len(batch.direction_BP) for batch in queries)
    recall = {k: float(torch.cat(hits[k]).mean()) for k in ks}
    exact_ms, index_ms = (1e3 * spent / count for spent in seconds)
    return RecallReport(count, recall, float(torch.cat(hits[most]).min()), exact_ms, index_ms)
