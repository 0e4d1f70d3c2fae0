"""The `evaluate` metric: the Space's own cases, both forms of references, errors, and loading by name."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import ruleworld_data

evaluate = pytest.importorskip("evaluate")
SPACE = Path(ruleworld_data.METRIC_PATH)


@pytest.fixture
def metric(tmp_path: Path) -> object:
    return evaluate.load(ruleworld_data.METRIC_PATH, cache_dir=str(tmp_path))


@pytest.mark.parametrize("case", runpy.run_path(str(SPACE / "tests.py"))["test_cases"])
def test_the_cases_of_the_space(metric: object, case: dict) -> None:
    assert metric.compute(predictions=case["predictions"], references=case["references"]) == case["result"]


def test_batches_and_single_rows_agree_with_one_call(metric: object) -> None:
    predictions = ["\\boxed{12, desert}", "\\boxed{7}", "none", "\\boxed{1, 2}"]
    references = [["12", "bridge"], ["7"], ["0"], ["1"]]
    expected = {"exact_match": 0.375, "strict_match": 0.25, "length_mismatch": 0.25, "missing_box": 0.25}
    assert metric.compute(predictions=predictions, references=references) == expected
    for prediction, reference in zip(predictions, references, strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == expected
    assert metric.compute(predictions=predictions, references=["12, bridge", "7", "0", "1"]) == expected


def test_bad_input_is_refused_with_words(metric: object) -> None:
    with pytest.raises(ValueError, match="no predictions to score"):
        metric.compute(predictions=[], references=[])
    with pytest.raises(ValueError, match="references mix lists and strings"):
        metric.compute(predictions=["a", "b"], references=["1", ["2"]])


def test_the_space_is_complete() -> None:
    card = (SPACE / "README.md").read_text()
    front = card.split("---")[1]
    for key in ("title:", "sdk: gradio", "sdk_version:", "app_file: app.py", "tags:", "description:"):
        assert key in front
    for name in ("Metric Description", "How to Use", "Inputs", "Output Values", "Limitations", "Citation"):
        assert name in card
    assert {file.name for file in SPACE.iterdir() if file.is_file()} == {
        "README.md",
        "app.py",
        "requirements.txt",
        "ruleworld_em.py",
        "tests.py",
    }
    compile((SPACE / "app.py").read_text(), "app.py", "exec")


def test_load_by_name_from_any_directory_without_network(
    run_python: Callable[..., str], tmp_path: Path
) -> None:
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
    assert printed.strip().splitlines()[-2:] == ["RuleWorldEM", "OwnMetric"]
    assert "Warning" not in printed
