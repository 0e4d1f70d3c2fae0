from collections import defaultdict

import numpy as np
import pytest
import scipy.stats
from ruleworld_data.spec import SUBTASKS
from rwbench.run.data import DataSource
from rwbench.score.stats import grouped_estimates, sample_clusters


def test_clusters_are_the_most_shared_gold_rule_within_a_world():
    worlds = ["w", "w", "w", "v"]
    gold = [[1, 9], [9, 2], [3], [9]]
    samples = [{"world_id": w, "gold_rules": [rules]} for w, rules in zip(worlds, gold, strict=True)]
    assert sample_clusters(samples) == [("w", 9), ("w", 9), ("w", 3), ("v", 9)]
    assert sample_clusters([{"world_id": "w", "gold_rules": [[5], [4]]}]) == [("w", 4)]


def test_questions_of_one_chain_are_in_one_cluster():
    source = DataSource("tiny", version="1.1")
    asked = [q for subtask in SUBTASKS for q in source.questions(subtask, "test")]
    samples = [{"world_id": q.world_id, "gold_rules": [list(step) for step in q.gold_steps]} for q in asked]
    chains = defaultdict(set)
    for question, cluster in zip(asked, sample_clusters(samples), strict=True):
        chain = question.row["gold_rule_ids"]
        if not question.subtask.startswith("multi_rule"):  # the rest is who has how many
            chain = chain[: question.row["n_hops"]]
        chains[tuple(chain)].add(cluster)
    assert len(chains) < len(asked)
    assert all(len(clusters) == 1 for clusters in chains.values())


def test_single_clusters_give_the_ordinary_bootstrap():
    values = np.random.default_rng(0).random(80)
    macro, by_group, _ = grouped_estimates(values, ["a"] * 80, list(range(80)))
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert macro["value"] == pytest.approx(values.mean(), abs=1e-6)
    assert macro["ci_low"] == pytest.approx(theirs.low, abs=0.004)
    assert macro["ci_high"] == pytest.approx(theirs.high, abs=0.004)
    assert macro == by_group["a"]
    assert (macro["n"], macro["method"]) == (80, "bootstrap")


def test_clusters_widen_the_interval_as_theory_says():
    """Twenty clusters of ten equal answers are twenty answers, not two hundred."""
    rng = np.random.default_rng(2)
    values = np.repeat(rng.integers(0, 2, 20).astype(float), 10)
    clustered, _, _ = grouped_estimates(values, ["a"] * 200, [i // 10 for i in range(200)])
    single, _, _ = grouped_estimates(values, ["a"] * 200, list(range(200)))
    width, narrow = (e["ci_high"] - e["ci_low"] for e in (clustered, single))
    assert width / narrow == pytest.approx(10**0.5, rel=0.1)


def test_sub_tasks_weigh_the_same_whatever_their_size():
    values = np.array([1.0] * 30 + [0.0, 1.0])
    macro, by_group, _ = grouped_estimates(values, ["big"] * 30 + ["small"] * 2, list(range(32)))
    assert macro["value"] == pytest.approx((1.0 + 0.5) / 2)
    assert (by_group["big"]["value"], by_group["small"]["value"]) == (1.0, 0.5)
    assert (by_group["big"]["n"], by_group["small"]["n"]) == (30, 2)


def test_a_perfect_score_is_not_certain():
    macro, by_group, _ = grouped_estimates(np.ones(50), ["a"] * 50, [i // 2 for i in range(50)])
    low = scipy.stats.binomtest(25, 25).proportion_ci(method="wilson").low
    assert macro == by_group["a"]
    assert (macro["value"], macro["ci_high"], macro["method"]) == (1.0, 1.0, "wilson")
    assert macro["ci_low"] == pytest.approx(low, abs=1e-6)
    zero, _, _ = grouped_estimates(np.zeros(50), ["a"] * 50, list(range(50)))
    high = scipy.stats.binomtest(0, 50).proportion_ci(method="wilson").high
    assert zero["ci_low"] == 0 and zero["ci_high"] == pytest.approx(high, abs=1e-6)
