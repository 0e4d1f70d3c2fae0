"""Means of scores, also of those who may refuse: where some have no answer, and answers come with a confidence.

To answer ``unknown`` is to refuse. An output without a box refuses nothing; it is a wrong answer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, nan
from statistics import fmean

from ..spec import UNKNOWN
from .answers import Score, exact_match, in_order, same_answer

RATES = ("exact_match", "strict_match", "length_mismatch", "missing_box")
SELECTIVE = ("coverage", "answered_match", "refused_unknown", "refused_known")


def selective_scores(answers: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Score one output by what it refuses.

    Parameters
    ----------
    answers : sequence of str
        What its box holds; empty without a box.
    gold : sequence of str

    Returns
    -------
    dict
        ``coverage``, 1 if it answers and 0 if it refuses; ``answered_match``, its exact match, if it answers; 1 if it
        refuses, else 0, as ``refused_unknown`` of a question without an answer, where to refuse is right, and as
        ``refused_known`` of any other, where it is wrong.
    """
    refused = len(answers) > 0 and all(same_answer(answer, UNKNOWN) for answer in answers)
    scores = {"coverage": float(not refused)}
    if not refused:
        scores["answered_match"] = exact_match(answers, gold)
    scores["refused_unknown" if has_no_answer(gold) else "refused_known"] = float(refused)
    return scores


def has_no_answer(gold: Sequence[str]) -> bool:
    """Say whether a question's gold answer is that the rules do not say."""
    return len(in_order("gold", gold)) == 1 and same_answer(gold[0], UNKNOWN)


def finite(what: str, value: object) -> float:
    """Return a number as a float; ``ValueError`` for what is none, nan, infinite or larger than a float can be."""
    try:
        number = nan if isinstance(value, str | bytes | bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not isfinite(number):
        raise ValueError(
            f"{what} must be a finite number, as in 0.9, got {value!r:.80}; give one with every output, or with none"
        )
    return number


def selective_means(scores: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each of `selective_scores` over the outputs that have it, in the order of `SELECTIVE`."""
    values: dict[str, list[float]] = defaultdict(list)
    for own in scores:
        for name, value in own.items():
            values[name].append(value)
    return {name: fmean(values[name]) for name in SELECTIVE if name in values}


def risk_coverage_area(confidences: Sequence[float], scores: Sequence[float]) -> float:
    """Return the area under the risk-coverage curve: 0 if all is right, and lower the better errors are foreseen.

    The risk at coverage k / n is the mean error, 1 less the score, of the k outputs of highest confidence; the area is
    its mean over k from 1 to n. Of equal confidences any order counts as much: each has their mean error. A refusal is
    an output as any other, right where there is no answer.

    Raises
    ------
    ValueError
        If there are no outputs, not one confidence for each, or one that is no number, or a score beyond 0 and 1.
    """
    confidences = [finite("a confidence", one) for one in in_order("confidences", confidences)]
    scores = in_order("scores", scores)
    if odd := [score for score in scores if not 0 <= score <= 1]:  # not a number is neither
        raise ValueError(f"a score must be from 0 to 1, got {odd[0]!r:.80}")
    if not scores or len(confidences) != len(scores):
        raise ValueError(f"each output needs a confidence, got {len(confidences)} for {len(scores)} outputs")
    errors: dict[float, list[float]] = defaultdict(list)
    for confidence, score in zip(confidences, scores, strict=True):
        errors[confidence].append(1 - score)
    number, total, area = 0, 0.0, 0.0
    for confidence in sorted(errors, reverse=True):
        equals = errors[confidence]
        for _ in equals:
            number, total = number + 1, total + fmean(equals)
            area += total / number
    return area / number


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
