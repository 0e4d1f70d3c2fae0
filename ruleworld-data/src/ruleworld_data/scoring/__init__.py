"""From the text of an answer to numbers: the scorer, recall of rules, files of predictions, the `evaluate` metric.

The scorer and recall are pure functions on the standard library, so that a leaderboard can re-score without more.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .answers import SCORER_VERSION as SCORER_VERSION
    from .answers import Score as Score
    from .answers import exact_match as exact_match
    from .answers import normalise as normalise
    from .answers import parse_boxed as parse_boxed
    from .answers import score_output as score_output
    from .answers import split_answers as split_answers
    from .answers import strict_match as strict_match
    from .guesses import SHORTCUT_BAR as SHORTCUT_BAR
    from .guesses import SHORTCUTS as SHORTCUTS
    from .guesses import shortcuts as shortcuts
    from .predictions import PARQUET_SUFFIXES as PARQUET_SUFFIXES
    from .predictions import read_predictions as read_predictions
    from .recall import step_recall as step_recall
    from .recall import step_recalls as step_recalls
    from .recall import union_recall as union_recall
    from .summary import score_file as score_file
    from .summary import score_predictions as score_predictions

__getattr__, __dir__, __all__ = attach(
    __name__,
    answers="SCORER_VERSION Score exact_match normalise parse_boxed score_output split_answers strict_match",
    guesses="SHORTCUTS SHORTCUT_BAR shortcuts",
    predictions="PARQUET_SUFFIXES read_predictions",
    recall="step_recall step_recalls union_recall",
    summary="score_file score_predictions",
)
