"""Refusals and confidences: hand-made cases, and the area under the risk-coverage curve by brute force."""

import itertools
import tomllib
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.environments import EnvConfig, instance
from ruleworld_data.environments import score as reward
from ruleworld_data.plugins.common import output_scores
from ruleworld_data.scoring import (
    mean_scores,
    risk_coverage_area,
    score_output,
    selective_means,
    selective_scores,
)

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("output", "right"), CASES["unknown"])
def test_what_says_unknown(output, right):
    assert (
        score_output(output, ["unknown"]).exact_match
        == output_scores(output, ["unknown"])["exact_match"]
        == right
    )


GOLD = {"a": ["unknown"], "b": ["unknown"], "c": ["12"], "d": ["7"], "e": ["9"]}
OUTPUTS = dict(zip(GOLD, ("unknown", "9", "unknown", "7", "8"), strict=True))
MEANS = {"coverage": 0.6, "answered_match": 1 / 3, "refused_unknown": 0.5, "refused_known": 1 / 3}


def test_means_by_hand():
    """Of three answered one is right; one of two unknown and one of three known ones are refused."""
    assert selective_means(selective_scores([OUTPUTS[name]], GOLD[name]) for name in GOLD) == pytest.approx(
        MEANS
    )
    scores = [score_output(rf"\boxed{{{OUTPUTS[name]}}}", gold) for name, gold in GOLD.items()]
    result = mean_scores(scores, list(GOLD.values()), [0.9, 0.5, 0.5, 0.8, 0.1])
    assert {name: result[name] for name in MEANS} == pytest.approx(MEANS)
    assert result["aurc"] == pytest.approx(fmean([0, 0, 1 / 3, 2 / 4, 3 / 5]))
    assert "coverage" not in mean_scores(scores[2:], list(GOLD.values())[2:])
    assert selective_scores([], ["unknown"])["coverage"] == 1  # without a box nothing is refused


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=6))
def test_area_by_brute_force(pairs):
    """Over all orders of equal confidences, the mean of the mean error of the first k."""
    areas = []
    for order in itertools.permutations(pairs):
        if all(one[0] >= two[0] for one, two in itertools.pairwise(order)):
            errors = [1 - score for _, score in order]
            areas.append(fmean(fmean(errors[:k]) for k in range(1, len(errors) + 1)))
    assert risk_coverage_area(*zip(*pairs, strict=True)) == pytest.approx(fmean(areas))


def test_what_would_be_averaged_to_no_score_is_refused():
    right = score_output("unknown", ["unknown"])
    for function, *values, said in (
        (risk_coverage_area, [0.5], [1, 0], "got 1 for 2"),
        (risk_coverage_area, [0.5, 0.4], [1, float("nan")], "from 0 to 1, got nan"),
        (risk_coverage_area, [0.5, 0.4], [1, 12], "from 0 to 1, got 12"),
        (risk_coverage_area, [0.5, 0.4], {0.0, 1.0}, "scores must be a list"),
        (mean_scores, [right], [["unknown"], ["7"]], "got 2 for 1"),
        (mean_scores, [], [], "got 0 for 0"),
        (mean_scores, [right], ["unknown"], "gold must be a list"),
        (selective_scores, ["unknown"], "unknown", "gold must be a list"),
    ):
        with pytest.raises(ValueError, match=said):
            function(*values)


def test_a_reward_accepts_it():
    config = EnvConfig(subtasks=("unknown_2",), pool_size=50)
    made = [instance(config, index) for index in range(8)]
    assert {"unknown"} in [set(one.metadata["answers"]) for one in made]
    for one in made:
        assert reward(one.answer, one.metadata).reward == 1
        unknown = one.metadata["answers"] == ["unknown"]
        assert reward(r"\boxed{unknown}", one.metadata).exact == unknown
