"""What every tool reports of one output, and how it is averaged: the same numbers as `ruleworld score`."""

from __future__ import annotations

from collections.abc import Sequence

from ..scoring import score_output

METRICS = {"exact_match": True, "strict_match": True, "missing_box": False}
"""Name -> whether more is better."""


def output_scores(output: str, answers: Sequence[str]) -> dict[str, float]:
    """Return the `METRICS` of one output against its gold answers, each 0 to 1."""
    score = score_output(output, answers)
    return {name: float(getattr(score, name)) for name in METRICS}


def mean(values: Sequence[float]) -> float:
    """Return the mean as `ruleworld score` adds it up: numpy's differs in the last digits. 0 of nothing."""
    return sum(values) / len(values) if len(values) else 0.0
