"""The metric of `evaluate`: by hand, in batches, and every way to hand it something else."""

from pathlib import Path

import pytest
import ruleworld_data

SPACE = Path(ruleworld_data.METRIC_PATH)


@pytest.fixture
def metric(tmp_path):
    evaluate = pytest.importorskip("evaluate")
    return evaluate.load(ruleworld_data.METRIC_PATH, cache_dir=str(tmp_path))


def test_batches_and_single_rows_agree_with_one_call(metric):
    predictions = ["\\boxed{12, desert}", "\\boxed{7}", "none", "\\boxed{1, 2}"]
    references = [["12", "bridge"], ["7"], ["0"], ["1"]]
    expected = {"exact_match": 0.375, "strict_match": 0.25, "length_mismatch": 0.25, "missing_box": 0.25}
    assert metric.compute(predictions=predictions, references=references) == expected
    for prediction, reference in zip(predictions, references, strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == expected
    for prediction, gold in zip(predictions, ["12, bridge", ["7"], "0", "1"], strict=True):  # of both kinds
        metric.add(prediction=prediction, reference=gold)
    assert metric.compute() == expected
    assert metric.compute(predictions=predictions, references=["12, bridge", "7", "0", "1"]) == expected


def test_refusals_and_confidences_by_hand(metric):
    outputs = [r"\boxed{unknown}", r"\boxed{9}", r"\boxed{7}", r"\boxed{unknown}"]
    found = metric.compute(
        predictions=outputs, references=["Unknown", "unknown", "7", "8"], confidences=[4, 1, 3, 2]
    )
    names = ("exact_match", "coverage", "answered_match", "refused_unknown", "refused_known")
    assert [found[name] for name in names] == [0.5] * 5 and found["aurc"] == pytest.approx(
        (1 / 3 + 2 / 4) / 4
    )


def test_bad_input_is_refused_with_words(metric):
    with pytest.raises(ValueError, match="no predictions to score"):
        metric.compute(predictions=[], references=[])
    for odd in (None, 1, [r"\boxed{1}"]):
        with pytest.raises(ValueError, match="a prediction must be a text"):
            metric.compute(predictions=[r"\boxed{2}", odd], references=[["1"], ["2"]])
    outputs, golds = [r"\boxed{1, 2}", r"\boxed{3}"], [["1", "2"], ["3"]]
    for odd in (
        [{"1", "2"}, {"3"}],
        [{"1": 0, "2": 0}, ["3"]],
        dict(enumerate(golds)),
        "13",
        [["1, 2"], ["3"]],
    ):
        with pytest.raises(ValueError, match="must be"):
            metric.compute(predictions=outputs, references=odd)
    with pytest.raises(ValueError, match="a reference must be"):
        metric.add(prediction=outputs[0], reference={"1", "2"})
    for odd in (
        [0.1, None],
        {0: 0.1, 1: 0.9},
        [[0.1], [0.9]],
        ["1", "2"],
        [True, False],
        [0.1, 10**400],
        0.5,
    ):
        with pytest.raises(ValueError, match=r"must be"):
            metric.compute(predictions=outputs, references=golds, confidences=odd)


def test_half_a_surrogate_pair_is_scored_as_text(metric):
    outputs = ["\ud800\\boxed{1}", "\\boxed{1\udfff}"]
    assert metric.compute(predictions=outputs, references=[["1"], ["1"]])["exact_match"] == 0.5


def test_columns_of_a_table_are_scored_by_place(metric: object) -> None:
    table = pytest.importorskip("pandas").DataFrame(
        {"said": [r"\boxed{9}", r"\boxed{1}"], "gold": [["9"], ["2"]]}
    )
    for rows, right in ((table[::-1], 0.5), (table[1:], 0.0)):
        assert metric.compute(predictions=rows["said"], references=rows["gold"])["exact_match"] == right


def test_load_by_name_from_any_directory_without_network(run_python, tmp_path):
    pytest.importorskip("evaluate")
    # A script of the same name in a stranger's folder is not run, unless its path says so.
    own = tmp_path / "other"
    script = (
        (SPACE / "ruleworld_em.py").read_text().replace('"missing_box")', '"missing_box", "exact_match")')
    )
    (own / "ruleworld_em").mkdir(parents=True)
    (own / "ruleworld_em" / "ruleworld_em.py").write_text(script.replace("RuleWorldEM", "OwnMetric"))
    printed = run_python(
        f"""
import os, sys
import evaluate
metric = evaluate.load("ruleworld_em")
print(type(metric).__name__, metric.compute(predictions=["\\\\boxed{{1}}"], references=[["1"]]))
os.chdir({str(own)!r})
print(type(evaluate.load("ruleworld_em")).__name__)
print(type(evaluate.load("./ruleworld_em")).__name__)
import evaluate.inspect
assert evaluate.inspect.evaluation_module_factory is evaluate.loading.evaluation_module_factory
"""
    )
    assert "RuleWorldEM {'exact_match': 1.0, 'strict_match': 1.0," in printed
    assert "\nRuleWorldEM\nOwnMetric\n" in printed  # libraries may warn after it
    assert "Warning" not in printed
