"""From a method's output to the scores of one question; the definitions are `ruleworld_data.scoring`'s.

Rankings here break ties by rule id, so that a run has one result. That result depends on which ids the gold rules
happen to have; the expected recall over all orders of tied rules does not, and stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ruleworld_data.scoring import exact_match, step_recall, strict_match, union_recall

if TYPE_CHECKING:
    from ..methods import Output
    from ..run.data import Question

Budget = int | Literal["gold"]

RECALL_BUDGETS: dict[str, Budget] = {"1": "gold", "10": 10, "100": 100}
"""Metric suffix -> rules looked at. Recall@1 looks at as many as there are gold rules (the paper's caption)."""

RECALLS = tuple(f"recall@{name}" for name in RECALL_BUDGETS)
ANSWER_METRICS = ("exact_match", "strict_match")


class Ties(NamedTuple):
    """Scores of a ranking's kept rules, best first, and ids of those cut off that score as much as the last of them."""

    scores: Sequence[float]
    tail: Sequence[int]


def budgets(pool_size: int) -> dict[str, Budget]:
    """Return `RECALL_BUDGETS` without those that cover the whole pool, where every ranking is perfect."""
    return {name: k for name, k in RECALL_BUDGETS.items() if k == "gold" or k < pool_size}


def score(output: Output, question: Question, pool_size: int, stepwise: bool = False) -> dict[str, float]:
    """Score one output.

    Returns
    -------
    dict
        ``recall@1``, ``recall@10``, ``recall@100`` (order-free; those that the pool size makes trivial are
        left out) if rules were retrieved, ``step_recall@...`` beside them if they were retrieved step by
        step (missing steps count 0, also where a ``stepwise`` method stopped after the first one),
        ``exact_match`` and ``strict_match`` if there are answers.
    """
    scores: dict[str, float] = {}
    steps = output.retrieved
    for name, budget in budgets(pool_size).items():
        if steps is None:
            break
        if len(steps) > 1 or stepwise:
            scores[f"recall@{name}"] = union_recall(steps, question.gold_steps, budget)
            scores[f"step_recall@{name}"] = step_recall(steps, question.gold_steps, budget)
            continue
        ranked = steps[0] if steps else []
        scores[f"recall@{name}"] = union_recall([ranked], [question.gold], budget)
        k = len(question.gold) if budget == "gold" else budget
        if output.ties is not None and (k <= len(ranked) or not output.ties.tail):
            scores[f"expected_recall@{name}"] = expected_recall(ranked, output.ties, question.gold, k)
    if output.answers is not None:
        scores["exact_match"] = exact_match(output.answers, question.answers)
        scores["strict_match"] = strict_match(output.answers, question.answers)
    return scores


def expected_recall(ranked: Sequence[int], ties: Ties, gold: Collection[int], k: int) -> float:
    """Return the mean recall in the first ``k`` of the kept rule ids over all orders of rules with equal scores.

    Raises
    ------
    ValueError
        If there are no gold ids, or ``k`` reaches behind the cut.
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("gold has no rule ids; every question has at least one")
    if k >= len(ranked) and not ties.tail:
        return len(wanted.intersection(ranked)) / len(wanted)
    if k > len(ranked):
        raise ValueError(f"k={k} reaches behind the {len(ranked)} rules kept; keep at least k rules")
    edge = ties.scores[k - 1]
    sure = [rule for rule, score in zip(ranked, ties.scores, strict=True) if score > edge]
    tied = [rule for rule, score in zip(ranked, ties.scores, strict=True) if score == edge]
    if ties.scores[-1] == edge:
        tied += ties.tail
    share = (k - len(sure)) / len(tied)
    return (len(wanted.intersection(sure)) + share * len(wanted.intersection(tied))) / len(wanted)
