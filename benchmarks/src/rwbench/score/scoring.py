"""From a method's output to the scores of one question; the definitions are `ruleworld_data.scoring`'s.

Rankings here break ties by rule id, so that a run has one result. That result depends on which ids the gold rules
happen to have; the expected recall over all orders of tied rules does not, and stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from ruleworld_data.scoring import exact_match, step_recall, strict_match, union_recall

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


def score(
    answers: Sequence[str] | None,
    gold_answers: Sequence[str],
    retrieved: Sequence[Sequence[int]] | None,
    gold_rules: Sequence[Sequence[int]],
    pool_size: int,
    stepwise: bool = False,
    ties: Ties | None = None,
) -> dict[str, float]:
    """Score one output: metric -> value.

    Parameters
    ----------
    answers, gold_answers : sequence of str
        One per sub-question; None where a method does not answer, and then there is no ``exact_match``.
    retrieved, gold_rules : sequence of sequences of int
        Rule ids per search, best first (None where a method does not search), and per gold step. Searches that are
        steps have ``step_recall@...`` (missing steps count 0) beside the order-free ``recall@...``.
    pool_size : int
        Budgets that cover the pool are left out.
    stepwise : bool
        Whether searches are steps also where there was one only, as of a method that stopped after its first.
    ties : Ties, optional
        Of the only search, for the expected recall.
    """
    scores: dict[str, float] = {}
    gold = list(dict.fromkeys(rule for step in gold_rules for rule in step))
    if retrieved is not None:
        for name, budget in budgets(pool_size).items():
            if len(retrieved) > 1 or stepwise:
                scores[f"recall@{name}"] = union_recall(retrieved, gold_rules, budget)
                scores[f"step_recall@{name}"] = step_recall(retrieved, gold_rules, budget)
                continue
            ranked = retrieved[0] if retrieved else []
            scores[f"recall@{name}"] = union_recall([ranked], [gold], budget)
            k = len(gold) if budget == "gold" else budget
            if ties is not None and (k <= len(ranked) or not ties.tail):
                scores[f"expected_recall@{name}"] = expected_recall(ranked, ties, gold, k)
    if answers is not None:
        scores["exact_match"] = exact_match(answers, gold_answers)
        scores["strict_match"] = strict_match(answers, gold_answers)
    return scores


def expected_recall(ranked: Sequence[int], ties: Ties, gold: Collection[int], k: int) -> float:
    """Return the mean recall in the first ``k`` of the kept rule ids over all orders of rules with equal scores.

    A ValueError if there are no gold ids, or ``k`` reaches behind the cut.
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
