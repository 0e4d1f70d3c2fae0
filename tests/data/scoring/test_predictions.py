"""Predictions files, every way to get one wrong, the summary of their scores; and the metric of `evaluate`."""

import json
from pathlib import Path

import pytest
import ruleworld_data
from ruleworld_data.scoring import read_predictions, score_predictions
from ruleworld_data.spec import SUBTASKS


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


GOOD = {"id": "q1", "output": "\\boxed{1}"}


def test_json_lines(tmp_path):
    expected = {"q1": "\\boxed{1}", "q2": "zwölf\nZeilen \u2028 hier", "q3": ""}
    rows = [{"id": name, "output": output, "extra": 1} for name, output in expected.items()]
    lines = write(tmp_path / "a.jsonl", rows[0], "", "  ", *rows[1:])
    assert read_predictions(str(lines)) == (expected, None, {})
    unescaped = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + unescaped.replace("\n", "\r\n").encode())
    assert list(read_predictions(tmp_path / "b.jsonl").outputs.items()) == list(expected.items())
    assert read_predictions(write(tmp_path / "empty.jsonl")) == ({}, None, {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "q2", "output": ', r"line 2: not valid JSON .*expected \{"),
        ("[" * 100_000, r"line 2: not valid JSON"),
        ("[1, 2]", r"line 2: a JSON object was expected, got list \[1, 2\]"),
        ('{"id": "q2"}', r"line 2: there is no 'output'"),
        ('{"id": 2, "output": "x"}', r"line 2: id is int 2; expected .* two strings"),
        ('{"id": "q2", "output": ["12"]}', r"line 2: output is list \['12'\]"),
        ('{"id": "q1", "output": "again"}', r"line 2: id 'q1' was given before, on line 1; keep one"),
        ('{"id": ' + "9" * 5000 + "}", r"line 2: "),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    path = write(tmp_path / "bad.jsonl", GOOD, line, "broken as well")
    with pytest.raises(ValueError, match=message) as caught:
        read_predictions(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


def test_another_encoding_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "q2", "output": "zw\xf6lf"}\n')
    with pytest.raises(ValueError, match=r"line 2: not UTF-8 \(byte 0xf6 at column 27\)"):
        read_predictions(path)


GOLD = {"h1": "1", "h2": "2", "m1": "3, desert", "m2": "4, desert", "m3": "5, desert", "m4": "6, desert"}
SUBTASK = {"h": "multi_hop_3", "m": "multi_rule_2"}
ROWS = [{"id": name, "subtask": SUBTASK[name[0]], "answers": gold.split(", ")} for name, gold in GOLD.items()]
BOXES = {"h1": "1", "m1": "3, Desert", "m2": "4, bridge", "m3": "5", "m4": "6, desert"}
OUTPUTS = {name: f"\\boxed{{{box}}}" for name, box in BOXES.items()} | {"h2": "two"}
COLUMNS = ("n", "missing", "exact_match", "strict_match", "length_mismatch", "missing_box")


def test_summary_by_hand():
    result = score_predictions(ROWS, OUTPUTS)
    assert json.loads(json.dumps(result)) == result
    assert result["subtasks"] == {
        "multi_rule_2": dict(zip(COLUMNS, (4, 0, 0.625, 0.5, 0.25, 0.0), strict=True)),
        "multi_hop_3": dict(zip(COLUMNS, (2, 0, 0.5, 0.5, 0.0, 0.5), strict=True)),
    }
    assert list(result["subtasks"]) == ["multi_rule_2", "multi_hop_3"]  # the paper's order
    # Of the two sub-tasks, not of the six questions.
    assert result["macro"] == dict(zip(COLUMNS[2:], (0.5625, 0.5, 0.125, 0.25), strict=True))
    assert (result["n"], result["missing"], result["foreign"], result["paper"]) == (6, 0, 0, None)
    rows = [{"id": "x", "subtask": "another", "answers": ["1"]}, *ROWS]
    assert list(score_predictions(rows, OUTPUTS | {"x": ""})["subtasks"])[-1] == "another"


def test_missing_predictions_are_refused_or_score_zero():
    some = {name: OUTPUTS[name] for name in ("h1", "m1", "m4")} | {"else": "\\boxed{1}"}
    with pytest.raises(
        ValueError, match=r"3 of 6 questions have no prediction \(h2, m2, m3\); 1 predictions"
    ) as caught:
        score_predictions(ROWS, some)
    assert "allow_missing=True" in str(caught.value)
    result = score_predictions(iter(ROWS), some, allow_missing=True)
    assert (result["missing"], result["foreign"]) == (3, 1)
    assert tuple(result["subtasks"]["multi_hop_3"].values()) == (2, 1, 0.5, 0.5, 0.0, 0.0)
    assert result["subtasks"]["multi_rule_2"]["exact_match"] == 0.5


def test_the_wrong_split_is_refused_even_if_missing_is_allowed():
    with pytest.raises(ValueError, match=r"none of the 2 predicted ids \(x1, x2\) is among the 6 questions"):
        score_predictions(ROWS, {"x1": "", "x2": ""}, allow_missing=True)
    nothing = score_predictions(ROWS, {}, allow_missing=True)
    assert (nothing["missing"], nothing["macro"]["exact_match"]) == (6, 0.0)


def test_paper_overall_is_the_mean_of_six_groups():
    right = {"single_rule": 1, "multi_rule_2": 1, "multi_rule_6": 1, "multi_hop_4": 1}
    rows = [{"id": name, "subtask": name, "answers": ["1"]} for name in SUBTASKS]
    result = score_predictions(rows, {name: f"\\boxed{{{right.get(name, 0)}}}" for name in SUBTASKS})
    groups = {"single": 1, "multi_rule_2_4": 1 / 3, "multi_rule_5_8": 1 / 4}
    groups |= {"multi_hop_2": 0, "multi_hop_3": 0, "multi_hop_4": 1}
    assert result["paper"] == pytest.approx(groups | {"exact_match": sum(groups.values()) / 6})
    assert result["macro"]["exact_match"] == pytest.approx(4 / 11)


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
    assert printed.strip().splitlines()[-2:] == ["RuleWorldEM", "OwnMetric"]
    assert "Warning" not in printed
