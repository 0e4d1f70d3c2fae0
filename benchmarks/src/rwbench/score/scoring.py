"""From a method's output to the scores of one question; the definitions are `ruleworld_data.scoring`'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ruleworld_data.scoring import exact_match, selective_scores, step_recall, strict_match, union_recall

Budget = int | Literal["gold"]

RECALL_BUDGETS: dict[str, Budget] = {"1": "gold", "10": 10, "100": 100}
"""Metric suffix -> rules looked at. Recall@1 looks at as many as there are gold rules (the paper's caption)."""

RECALLS = tuple(f"recall@{name}" for name in RECALL_BUDGETS)
ANSWER_METRICS = ("exact_match", "strict_match")


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
    subtask: str = "",
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
    subtask : str
        One with questions that have no answer is scored by what is refused, too (`selective_scores`).
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
    if answers is not None:
        scores["exact_match"] = exact_match(answers, gold_answers)
        scores["strict_match"] = strict_match(answers, gold_answers)
        if subtask.startswith("unknown"):
            scores |= selective_scores(answers, gold_answers)
    return scores
