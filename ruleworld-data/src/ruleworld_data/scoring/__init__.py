"""From the text of an answer to numbers: the scorer, recall of rules, means, the `evaluate` metric.

The scorer and recall are pure functions on the standard library, so that a leaderboard can re-score without more.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .answers import *
    from .recall import *
    from .selective import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    answers=(
        "SCORER_VERSION Score exact_match in_order normalise parse_boxed read_answers same_answer score_output "
        "split_answers strict_match"
    ),
    recall="step_recall step_recalls union_recall",
    selective="SELECTIVE has_no_answer mean_scores risk_coverage_area selective_means selective_scores",
)
