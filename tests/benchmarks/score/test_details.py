"""Recall by step and type, outcomes, costs and attention, each worked out by hand."""

import pytest
from rwbench.score.summarise import measure_means, recall_details, usage_totals


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
