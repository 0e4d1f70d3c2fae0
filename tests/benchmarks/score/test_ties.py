"""Expected recall against the mean over every order of tied rules."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rwbench.retrievers import rank
from rwbench.score.scoring import Ties, expected_recall, score


def over_all_orders(scores, gold, k):
    """Recall in the first k, averaged over all orders of the rules that respect the scores."""
    recalls = []
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            recalls.append(len(set(order[:k]) & gold) / len(gold))
    return np.mean(recalls)


@settings(max_examples=150, deadline=None)
@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=6),
    gold=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    k=st.integers(1, 6),
    kept=st.integers(1, 6),
)
def test_expected_recall_is_the_mean_over_all_orders(scores, gold, k, kept):
    gold = {rule for rule in gold if rule < len(scores)} or {0}
    k = min(k, kept)
    hits = rank(np.arange(len(scores), dtype=np.int32), np.array(scores), kept)
    ties = Ties(hits.scores.tolist(), hits.tail.tolist())
    wanted = over_all_orders(scores, gold, k)
    assert expected_recall(hits.ids.tolist(), ties, gold, k) == pytest.approx(wanted)


def test_rules_that_were_never_retrieved_tie_with_nothing():
    assert expected_recall([3, 1], Ties([2.0, 1.0], []), {1, 9}, 10) == 0.5


def test_a_cut_before_k_is_an_error_and_is_not_scored():
    with pytest.raises(ValueError, match="k=3 reaches behind the 2 rules kept"):
        expected_recall([3, 1], Ties([2.0, 1.0], [7]), {1}, 3)
    ties = Ties([1.0, 1.0], [8, 9])
    scores = score(None, ["7"], [[1, 5]], [[1]], 100, ties=ties)
    assert scores["recall@1"] == 1.0  # the lower id came first
    assert scores["expected_recall@1"] == pytest.approx(1 / 4)
    assert "expected_recall@10" not in scores
