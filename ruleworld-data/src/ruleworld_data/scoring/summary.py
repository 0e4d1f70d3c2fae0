"""Mean scores of many outputs."""

from collections.abc import Sequence

from .answers import Score
from .selective import has_no_answer, risk_coverage_area, selective_means, selective_scores

RATES = ("exact_match", "strict_match", "length_mismatch", "missing_box")


def mean_scores(
    scores: Sequence[Score], golds: Sequence[Sequence[str]], confidences: Sequence[float] | None = None
) -> dict[str, float]:
    """Return the means of scores: the `RATES`, and what refusals and confidences add.

    Where questions without an answer are among them, the means of `selective_scores`; with confidences ``aurc``, the
    area under the risk-coverage curve.
    """
    if not scores or len(scores) != len(golds):
        raise ValueError(f"each output needs its gold answers, got {len(golds)} for {len(scores)} outputs")
    means = {rate: sum(getattr(score, rate) for score in scores) / len(scores) for rate in RATES}
    if any(map(has_no_answer, golds)):
        pairs = zip(scores, golds, strict=True)
        means |= selective_means(selective_scores(score.parsed, gold) for score, gold in pairs)
    if confidences is not None:
        means["aurc"] = risk_coverage_area(confidences, [score.exact_match for score in scores])
    return means
