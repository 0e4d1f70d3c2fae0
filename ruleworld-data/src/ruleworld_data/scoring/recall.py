"""Recall of retrieved rules: the paper's step-wise recall, and one that ignores the order of the steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

RuleId = int | str
Budget = int | Literal["gold"]


def step_recalls(
    retrieved: Sequence[Sequence[RuleId]], gold: Sequence[Sequence[RuleId]], k: Budget
) -> list[float]:
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
    _check_budget(k)
    if len(gold) == 0:
        raise ValueError("gold has no steps; every question has at least one")
    recalls = []
    for step, ids in enumerate(gold):
        wanted = set(ids)
        if not wanted:
            raise ValueError(f"gold step {step} has no rule ids; every step has at least one")
        ranked = retrieved[step] if step < len(retrieved) else ()
        found = wanted.intersection(ranked[: len(wanted) if k == "gold" else k])
        recalls.append(len(found) / len(wanted))
    return recalls


def step_recall(retrieved: Sequence[Sequence[RuleId]], gold: Sequence[Sequence[RuleId]], k: Budget) -> float:
    """Return the paper's step-wise recall: the mean of `step_recalls` over the gold steps."""
    recalls = step_recalls(retrieved, gold, k)
    return sum(recalls) / len(recalls)


def union_recall(
    retrieved: Sequence[RuleId] | Sequence[Sequence[RuleId]],
    gold: Sequence[RuleId] | Sequence[Sequence[RuleId]],
    k: Budget,
) -> float:
    """Return the recall that ignores order: the share of all gold rules among the rules found at any step.

    Beside `step_recall`, which punishes a method for answering parallel sub-questions in another order.

    Parameters
    ----------
    retrieved : ranked rule ids, or one such list per retrieval
        With one list per retrieval the first ``k`` of each count.
    gold : rule ids, or one list of them per step
        Given per step, retrievals beyond the number of steps are dropped, so that the budget is
        `step_recall`'s.
    k : int or "gold"
        ``"gold"`` takes as many rules as there are gold rules: of each step if both arguments are given per
        step, of the whole question if there is one ranking.

    Raises
    ------
    ValueError
        If ``k`` is invalid, there are no gold ids, or ``k="gold"`` meets retrieval per step but flat gold
        ids, which does not say how many rules each retrieval may use.
    """
    _check_budget(k)
    steps = _lists(gold)
    wanted: set[RuleId] = set().union(*(steps if steps is not None else [gold]))
    if not wanted:
        raise ValueError("gold has no rule ids; every question has at least one")
    rankings = _lists(retrieved)
    if rankings is None:
        return len(wanted.intersection(retrieved[: len(wanted) if k == "gold" else k])) / len(wanted)
    if steps is not None:
        rankings = rankings[: len(steps)]
    elif k == "gold":
        raise ValueError("k='gold' with one ranking per step needs gold ids per step too; got flat gold ids")
    found: set[RuleId] = set()
    for step, ranked in enumerate(rankings):
        found.update(ranked[: k if k != "gold" else len(set((steps or [])[step]))])
    return len(found & wanted) / len(wanted)


def _check_budget(k: object) -> None:
    if k == "gold" or (isinstance(k, int) and not isinstance(k, bool) and k >= 1):
        return
    raise ValueError(f"k must be a positive integer or 'gold' (as many as there are gold rules), got {k!r}")


def _lists(ids: Sequence) -> list[Sequence[RuleId]] | None:
    """Return the lists if the sequence holds lists of ids, None if it holds ids."""
    nested = [isinstance(item, Iterable) and not isinstance(item, str | bytes) for item in ids]
    if any(nested) and not all(nested):
        raise ValueError("rule ids must be one flat list or one list per step, got a mixture of both")
    return list(ids) if any(nested) else None
