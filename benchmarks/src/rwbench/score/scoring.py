"""From a method's output to the scores of one question; the definitions are `ruleworld_data.scoring.answers`'s."""

from __future__ import annotations

from ruleworld_data.scoring.answers import exact_match, step_recall, strict_match, union_recall

from ..methods import Output
from ..run.data import Question
from .ties import expected_recall

RECALL_BUDGETS: dict[str, int | str] = {"1": "gold", "10": 10, "100": 100}
"""Metric suffix -> rules looked at. Recall@1 looks at as many as there are gold rules (the paper's caption)."""

RECALLS = tuple(f"recall@{name}" for name in RECALL_BUDGETS)
ANSWER_METRICS = ("exact_match", "strict_match")


def score(output: Output, question: Question, pool_size: int) -> dict[str, float]:
    """Score one output.

    Returns
    -------
    dict
        ``recall@1``, ``recall@10``, ``recall@100`` (order-free; those that the pool size makes trivial are
        left out) if rules were retrieved, ``step_recall@...`` beside them if they were retrieved step by
        step (missing steps count 0, also where a stepwise method stopped after the first one),
        ``exact_match`` and ``strict_match`` if there are answers.
    """
    scores: dict[str, float] = {}
    if output.retrieved is not None:
        steps = output.retrieved
        for name, budget in RECALL_BUDGETS.items():
            if isinstance(budget, int) and budget >= pool_size:
                continue
            if len(steps) == 1 and not output.stepwise:
                scores[f"recall@{name}"] = union_recall(steps[0], question.gold, budget)  # type: ignore[arg-type]
                k = len(question.gold) if isinstance(budget, str) else budget
                if output.ties is not None and (k <= len(steps[0]) or not output.ties.tail):
                    scores[f"expected_recall@{name}"] = expected_recall(
                        steps[0], output.ties, question.gold, k
                    )
            else:
                scores[f"recall@{name}"] = union_recall(steps, question.gold_steps, budget)  # type: ignore[arg-type]
                scores[f"step_recall@{name}"] = step_recall(steps, question.gold_steps, budget)  # type: ignore[arg-type]
    if output.answers is not None:
        scores["exact_match"] = exact_match(output.answers, question.answers)
        scores["strict_match"] = strict_match(output.answers, question.answers)
    return scores
