"""From the text of an answer to numbers: the scorer, recall of rules, files of predictions, the `evaluate` metric.

The scorer and recall are pure functions on the standard library, so that a leaderboard can re-score without more.
"""

from .answers import (
    SCORER_VERSION,
    Score,
    exact_match,
    normalise,
    parse_boxed,
    same_answer,
    score_output,
    split_answers,
    strict_match,
)
from .predictions import read_confidences, read_predictions
from .recall import step_recall, step_recalls, union_recall
from .selective import SELECTIVE, risk_coverage_area, selective_means, selective_scores
from .summary import score_file, score_predictions

__all__ = [
    "SCORER_VERSION",
    "SELECTIVE",
    "Score",
    "exact_match",
    "normalise",
    "parse_boxed",
    "read_confidences",
    "read_predictions",
    "risk_coverage_area",
    "same_answer",
    "score_file",
    "score_output",
    "score_predictions",
    "selective_means",
    "selective_scores",
    "split_answers",
    "step_recall",
    "step_recalls",
    "strict_match",
    "union_recall",
]
