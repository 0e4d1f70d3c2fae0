"""Recall of retrieved rules: the paper's step-wise recall, and one that ignores the order of the steps.

Both compare retrievals with gold steps, one list of rule ids each. One ranking for a whole question is one step.
"""

from collections.abc import Collection, Sequence
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
        If ``k`` is no positive integer or ``"gold"``, there is no gold step, or a gold step is empty.
    """
    steps = _checked(retrieved, gold, k)
    rankings = [*retrieved, *[()] * len(steps)]  # the missing ones
    hits = [
        ids & {*ranked[: len(ids) if k == "gold" else k]}
        for ids, ranked in zip(steps, rankings, strict=False)
    ]
    return [len(right) / len(ids) for right, ids in zip(hits, steps, strict=True)]


def step_recall(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget) -> float:
    """Return the paper's step-wise recall: the mean of `step_recalls` over the gold steps."""
    recalls = step_recalls(retrieved, gold, k)
    return sum(recalls) / len(recalls)


def union_recall(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: Budget) -> float:
    """Return the recall that ignores order: the share of all gold rules among the rules found at any step.

    Beside `step_recall`, which punishes a method for answering parallel sub-questions in another order. Parameters and
    errors are those of `step_recalls`, and so is the budget.
    """
    steps = _checked(retrieved, gold, k)
    retrieved_ids: set[RuleId] = set()
    for ranked, ids in zip(retrieved, steps, strict=False):
        retrieved_ids.update(ranked[: len(ids) if k == "gold" else k])
    wanted = set[RuleId]().union(*steps)
    return len(retrieved_ids & wanted) / len(wanted)


def _checked(retrieved: Rankings, gold: Sequence[Collection[RuleId]], k: object) -> list[set[RuleId]]:
    """Return the gold steps as sets."""
    if k != "gold" and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
        raise ValueError(
            f"k must be a positive integer or 'gold' (as many as there are gold rules), got {k!r}"
        )
    for ids in (*retrieved, *gold):
        if isinstance(ids, RuleId):
            raise ValueError(
                f"one list of rule ids per step was expected, got the id {ids!r}; of one ranking for a whole question "
                "make one step: [ranked], [gold]"
            )
    if len(gold) == 0:
        raise ValueError("gold has no steps; every question has at least one")
    for step, ids in enumerate(gold):
        if len(ids) == 0:
            raise ValueError(f"gold step {step} has no rule ids; every step has at least one")
    return [set(ids) for ids in gold]
