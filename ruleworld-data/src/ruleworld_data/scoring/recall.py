"""Recall of retrieved rules: the paper's step-wise recall, and one that ignores the order of the steps.

Both compare retrievals with gold steps, one list of rule ids each. One ranking for a whole question is one step.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from numbers import Integral
from typing import Literal

RuleId = int | str
Rankings = Sequence[Sequence[RuleId]]
Budget = int | Literal["gold"]


def step_recalls(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget) -> list[float]:
    """Return the recall of each gold step: retrieval t is compared with gold step t.

    Parameters
    ----------
    retrieved : sequence of ranked lists of rule ids
        One list per retrieval, best rule first. Missing retrievals count as recall 0, extra ones are dropped.
    gold : sequence of lists of rule ids
        The ids of each gold step.
    k : int or "gold"
        Rules looked at per step. ``"gold"`` takes as many as the step has gold rules, which the paper calls
        Recall@1. Repeated ids in a ranked list use up places.

    Raises
    ------
    ValueError
        If ``k`` is no positive integer or ``"gold"``, there is no gold step, or a gold step is empty, or ids are
        not all whole numbers or all texts.
    """
    return [len(found & ids) / len(ids) for found, ids in _looked_at(retrieved, gold, k)]


def step_recall(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget) -> float:
    """Return the paper's step-wise recall: the mean of `step_recalls` over the gold steps."""
    recalls = step_recalls(retrieved, gold, k)
    return sum(recalls) / len(recalls)


def union_recall(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget) -> float:
    """Return the recall that ignores order: the share of all gold rules among the rules found at any step.

    Beside `step_recall`, which punishes a method for answering parallel sub-questions in another order. Parameters and
    errors are those of `step_recalls`, and so is the budget.
    """
    found, wanted = (set().union(*ids) for ids in zip(*_looked_at(retrieved, gold, k), strict=True))
    return len(found & wanted) / len(wanted)


def _looked_at(
    retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget
) -> list[tuple[set[RuleId], set[RuleId]]]:
    """Return for each gold step the rules that are looked at, none where a retrieval is missing, and its gold rules."""
    if k != "gold" and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
        raise ValueError(f"k must be a positive integer or 'gold', as many as gold rules, got {k!r}")
    for ids in (*retrieved, *gold):
        if isinstance(ids, RuleId):
            raise ValueError(
                f"one list of rule ids per step was expected, got the id {ids!r}; of one ranking for a whole question "
                "make one step: [ranked], [gold]"
            )
    firsts = [id for ids in (*retrieved, *gold) for id in islice(ids, 1)]  # of two kinds none would be equal
    if not any(all(isinstance(id, kind) for id in firsts) for kind in (str, Integral)):
        raise ValueError(f"rule ids must be all whole numbers or all texts, got {firsts!r:.80}")
    if len(gold) == 0:
        raise ValueError("gold has no steps; every question has at least one")
    for step, ids in enumerate(gold):
        if len(ids) == 0:
            raise ValueError(f"gold step {step} has no rule ids; every step has at least one")
    rankings = [*retrieved, *[()] * len(gold)]  # the missing ones
    return [
        ({*ranked[: len(ids) if k == "gold" else k]}, ids)
        for ranked, ids in zip(rankings, map(set, gold), strict=False)
    ]
