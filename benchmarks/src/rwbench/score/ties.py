"""What recall would be on average if rules with equal scores were ordered by chance.

Rankings here break ties by rule id, so that a run has one result. That result depends on which ids the gold rules
happen to have; the expectation over all orders of tied rules does not, and stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Ties(NamedTuple):
    """What a ranking says about ties.

    Attributes
    ----------
    scores : sequence of float
        Of the kept rules, best first.
    tail : sequence of int
        Ids of the rules that score as much as the last kept one and were cut off.
    """

    scores: Sequence[float]
    tail: Sequence[int]


def expected_recall(ranked: Sequence[int], ties: Ties, gold: Collection[int], k: int) -> float:
    """Return the mean recall in the first ``k`` over all orders of rules with equal scores.

    Parameters
    ----------
    ranked : sequence of int
        Kept rule ids, best first, each once.
    ties : Ties
        Scores of ``ranked``, and what was cut off behind them.
    gold : collection of int
    k : int
        At most the number of rules that a search keeps: behind the cut no scores are known.

    Raises
    ------
    ValueError
        If there are no gold ids, or ``k`` reaches behind the cut.
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("gold has no rule ids; every question has at least one")
    if k >= len(ranked):
        if k > len(ranked) and ties.tail:
            raise ValueError(f"k={k} reaches behind the {len(ranked)} rules kept; keep at least k rules")
        if not ties.tail:
            return len(wanted.intersection(ranked)) / len(wanted)
    edge = ties.scores[k - 1]
    sure = [rule for rule, score in zip(ranked, ties.scores, strict=True) if score > edge]
    tied = [rule for rule, score in zip(ranked, ties.scores, strict=True) if score == edge]
    if ties.scores[-1] == edge:
        tied += ties.tail
    share = (k - len(sure)) / len(tied)
    return (len(wanted.intersection(sure)) + share * len(wanted.intersection(tied))) / len(wanted)
