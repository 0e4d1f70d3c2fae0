"""Clusters and intervals, tests against scipy's and published examples; recall by step, costs, attention by hand."""

import numpy as np
import pytest
import scipy.stats
from rwbench.score.scoring import score
from rwbench.score.stats import grouped_estimates, holm, paired_difference, sample_clusters
from rwbench.score.summarise import measure_means, recall_details, usage_totals


def test_clusters_are_the_most_shared_gold_rule_within_a_world():
    worlds = ["w", "w", "w", "v"]
    gold = [[1, 9], [9, 2], [3], [9]]
    samples = [{"world_id": w, "gold_rules": [rules]} for w, rules in zip(worlds, gold, strict=True)]
    assert sample_clusters(samples) == [("w", 9), ("w", 9), ("w", 3), ("v", 9)]
    assert sample_clusters([{"world_id": "w", "gold_rules": [[5], [4]]}]) == [("w", 4)]


def test_sub_tasks_weigh_the_same_whatever_their_size():
    values = np.array([1.0] * 30 + [0.0, 1.0])
    macro, by_group, _ = grouped_estimates(values, ["big"] * 30 + ["small"] * 2, list(range(32))).values()
    assert macro["value"] == pytest.approx((1.0 + 0.5) / 2)
    assert (by_group["big"]["value"], by_group["small"]["value"]) == (1.0, 0.5)
    assert (by_group["big"]["n"], by_group["small"]["n"]) == (30, 2)


def test_a_perfect_score_is_not_certain():
    macro, by_group, _ = grouped_estimates(np.ones(50), ["a"] * 50, [i // 2 for i in range(50)]).values()
    low = scipy.stats.binomtest(25, 25).proportion_ci(method="wilson").low
    assert macro == by_group["a"]
    assert (macro["value"], macro["ci_high"], macro["method"]) == (1.0, 1.0, "wilson")
    assert macro["ci_low"] == pytest.approx(low, abs=1e-6)
    zero = grouped_estimates(np.zeros(50), ["a"] * 50, list(range(50)))["macro"]
    high = scipy.stats.binomtest(0, 50).proportion_ci(method="wilson").high
    assert zero["ci_low"] == 0 and zero["ci_high"] == pytest.approx(high, abs=1e-6)


def scores(seed, n, shift=0.0):
    rng = np.random.default_rng(seed)
    first = rng.random(n)
    return first, np.clip(first + rng.normal(shift, 0.2, n), 0, 1)


@pytest.mark.parametrize(("n", "shift"), [(10, 0.1), (60, 0.03), (60, 0.0)])
def test_single_clusters_give_the_paired_permutation_test(n, shift):
    first, second = scores(n, n, shift)
    found = paired_difference(first, second, ["a"] * n, list(range(n)))
    theirs = scipy.stats.permutation_test(
        (second, first),
        lambda x, y: np.mean(x - y),
        permutation_type="samples",
        n_resamples=2**n if n <= 13 else 20_000,
        rng=np.random.default_rng(1),
    )
    assert found.value == pytest.approx(np.mean(second - first))
    assert found.p_value == pytest.approx(theirs.pvalue, abs=1e-9 if n <= 13 else 0.02)
    bootstrap = scipy.stats.bootstrap(
        (second - first,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(2)
    ).confidence_interval
    assert (found.ci_low, found.ci_high) == pytest.approx((bootstrap.low, bootstrap.high), abs=0.01)
    assert found.better + found.worse <= found.n == found.clusters == n


def test_pairs_that_repeat_within_a_cluster_prove_no_more_than_one():
    first, second = scores(4, 12, 0.15)
    once = paired_difference(first, second, ["a"] * 12, list(range(12)))
    many = paired_difference(
        np.repeat(first, 10), np.repeat(second, 10), ["a"] * 120, [i // 10 for i in range(120)]
    )
    naive = paired_difference(np.repeat(first, 10), np.repeat(second, 10), ["a"] * 120, list(range(120)))
    assert many.value == pytest.approx(once.value)
    assert many.p_value == pytest.approx(once.p_value)
    assert (many.ci_low, many.ci_high) == pytest.approx((once.ci_low, once.ci_high))
    assert naive.p_value < once.p_value


def test_sub_tasks_weigh_the_same_and_equal_runs_do_not_differ():
    second = np.array([0.0] * 30 + [1.0] * 10)
    found = paired_difference(np.zeros(40), second, ["big"] * 30 + ["small"] * 10, list(range(40)))
    assert found.value == pytest.approx(0.5) and (found.better, found.worse) == (10, 0)
    assert paired_difference(second, second, ["a"] * 40, list(range(40)))[:4] == (0.0, 0.0, 0.0, 1.0)


def test_holm_by_hand():
    # Holm (1979): the smallest of m is multiplied by m, the next by m - 1, and none falls below one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def sample(**fields):
    question = {"id": "q", "subtask": "multi_hop_2", "world_id": "w", "gold_rules": [[1], [3, 4]]}
    return question | {"retrieved": None, "error": None, "usage": {}} | fields


def values(estimates):
    return {part: estimate["value"] for part, estimate in estimates.items()}


def test_one_search_is_held_to_the_question_s_budget():
    """Three gold rules, so Recall@1 looks at three places: rule 1 and rule 3 are among them, rule 4 is not."""
    by_step = recall_details([sample(retrieved=[[9, 3, 1, 4]]), sample()], 100)["by_step"]
    assert values(by_step["recall@1"]) == {"1": 1.0, "2": 0.5}
    assert set(by_step) == {"recall@1", "recall@10"}
    assert recall_details([sample()], 100) == {"by_step": {"recall@1": {}, "recall@10": {}}}


def test_searches_per_step_are_compared_step_by_step():
    """The paper's rule: retrieval t against gold step t, a missing one counts 0."""
    both = [
        sample(id="a", retrieved=[[3, 1], [3, 9, 4]]),
        sample(id="b", retrieved=[[1], [4, 3]], gold_rules=[[1], [3, 4], [2]], subtask="multi_hop_3"),
    ]
    by_step = recall_details(both, 1000)["by_step"]
    assert values(by_step["recall@1"]) == {"1": 0.5, "2": 0.75, "3": 0.0}
    assert by_step["recall@10"]["1"]["value"] == 1.0


def test_costs_add_up():
    samples = [
        sample(outcome="ok", usage={"calls": 2, "seconds": {"generate": 0.5}, "cached_calls": 1}),
        sample(outcome="length", usage={"calls": 4, "weight": 0.25, "seconds": {"generate": 1.0}}),
        sample(error="boom"),
    ]
    assert usage_totals(samples) == {
        "calls": {"total": 6, "mean": 3.0},
        "weight": {"total": 0.25, "mean": 0.25},
    }


def test_attention_is_averaged_by_step():
    first = {"rule_attention": [[0.2, 0.3, 0.1], [0.0, 0.1, 0.7]], "rule_attention_step": [0, 0, 1]}
    second = {"rule_attention": [[0.9, 0.1]], "rule_attention_step": [0, 1]}
    entropy = {"rule_entropy": [2.0, 1.0], "rule_layers": [3, 7]}
    found = measure_means([sample(measures=m) for m in (first, second, entropy, {})])
    assert found["rule_attention"]["2"]["n"] == [2, 1]
    assert found["rule_attention"]["2"]["weights"] == [[0.7, 0.1], pytest.approx([0.1, 0.7])]
    assert found["rule_entropy"] == {"layers": [3, 7], "mean": [2.0, 1.0], "std": [0.0, 0.0], "n": 1}
    assert measure_means([sample()]) == {}


@pytest.mark.parametrize("answers", ["12", [1, "2"], ["1", ["2"]]])
def test_answers_that_are_no_list_of_texts_have_no_score(answers):
    question = {"retrieved": None, "gold_rules": [[1]], "gold_answers": ["1", "2"], "subtask": "multi_rule_2"}
    assert score({**question, "answers": ["1", "2"]}, 100)["exact_match"] == 1
    with pytest.raises(ValueError, match="must be a list of texts"):
        score({**question, "answers": answers}, 100)
