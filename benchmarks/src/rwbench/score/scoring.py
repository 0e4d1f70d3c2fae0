"""From a method's output to the scores of one question; the definitions are `ruleworld_data.scoring`'s."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from ruleworld_data.scoring import (
    exact_match,
    in_order,
    selective_scores,
    step_recall,
    strict_match,
    union_recall,
)

Budget = int | Literal["gold"]

RECALL_BUDGETS: dict[str, Budget] = {"1": "gold", "10": 10, "100": 100}
"""Metric suffix -> rules looked at. Recall@1 looks at as many as there are gold rules (the paper's caption)."""

RECALLS = tuple(f"recall@{name}" for name in RECALL_BUDGETS)
ANSWER_METRICS = ("exact_match", "strict_match")


def budgets(pool_size: int) -> dict[str, Budget]:
    """Return `RECALL_BUDGETS` without those that cover the whole pool, where every ranking is perfect."""
    return {name: k for name, k in RECALL_BUDGETS.items() if k == "gold" or k < pool_size}


def gold_of(sample: Mapping[str, Any]) -> list[int]:
    """Return a sample's gold rules, each once, in step order."""
    return list(dict.fromkeys(rule for step in sample["gold_rules"] for rule in step))


def score(sample: Mapping[str, Any], pool_size: int, stepwise: bool = False) -> dict[str, float]:
    """Score a sample, as `rwbench.score.samples` describes it: metric -> value.

    Without answers there is no ``exact_match``. Searches that are steps, as with ``stepwise`` they are also where there
    was one only, have ``step_recall@...`` (missing steps count 0) beside the order-free ``recall@...``; budgets that
    cover the pool are left out. A ``subtask`` with questions that have no answer is scored by what is refused, too.
    """
    scores: dict[str, float] = {}
    answers, retrieved, gold_rules = (sample[name] for name in ("answers", "retrieved", "gold_rules"))
    gold = gold_of(sample)
    if retrieved is not None and gold:  # questions of a user's own book may name no rules
        for name, budget in budgets(pool_size).items():
            if len(retrieved) > 1 or stepwise:
                scores[f"recall@{name}"] = union_recall(retrieved, gold_rules, budget)
                scores[f"step_recall@{name}"] = step_recall(retrieved, gold_rules, budget)
                continue
            scores[f"recall@{name}"] = union_recall([retrieved[0] if retrieved else []], [gold], budget)
    if answers is not None:
        if odd := [one for one in in_order("answers", answers) if not isinstance(one, str)]:
            raise ValueError(f"answers must be a list of texts, got {odd[0]!r:.60} among them")
        scores |= _answer_scores(tuple(answers), tuple(sample["gold_answers"]))
        if sample["subtask"].startswith("unknown"):
            scores |= selective_scores(answers, sample["gold_answers"])
    return scores


@lru_cache(maxsize=100_000)
def _answer_scores(answers: tuple[str, ...], gold: tuple[str, ...]) -> dict[str, float]:
    """Return both scores; a folder's runs answer the same questions, and most of them alike."""
    return {"exact_match": exact_match(answers, gold), "strict_match": strict_match(answers, gold)}
