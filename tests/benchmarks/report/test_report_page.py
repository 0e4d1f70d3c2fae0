"""The page: numbers, escaping, nothing from outside; settings kept apart, methods told apart."""

import copy
import html
import re

import pytest
from rwbench.report.page import render_page
from rwbench.report.setting import settings
from rwbench.report.tables import interval

EVIL = '<script>alert("x")</script>&\'"'


def test_the_page_loads_nothing_and_runs_nothing(searches):
    text = render_page(searches, "RuleWorld: smoke", "rwbench run smoke")
    loads = re.findall(r'<[^>]*\b(?:src|href|action|srcset)="([^"]*)"', text)
    assert loads and all(load.startswith("data:image/svg+xml;base64,") for load in loads)
    assert not re.search(r"https?://|url\(|@import|<[^>]* on\w+=", text)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy and "script-src" not in policy
    assert not re.search("<(script|link|iframe|object|button)", text)


def test_every_string_is_escaped(answering):
    for run in answering:
        run["method"]["label"] = run["run_id"] = EVIL
        run["spec"]["data"] = run["spec"]["split"] = run["spec"]["scale"] = EVIL
        run["spec"]["subtasks"] = [EVIL]
        run["environment"]["python"] = run["environment"]["platform"] = EVIL
        run["environment"]["git"] = {"commit": EVIL, "dirty": True}
        for metric in run["metrics"].values():
            metric["by_subtask"] = {EVIL: metric["macro"]}
    text = render_page(answering, EVIL, EVIL, skipped=[EVIL])
    assert EVIL not in text and "<script" not in text
    assert html.unescape(text).count(EVIL) >= 10


def test_the_page_says_what_the_results_say(searches, answering):
    text = render_page(searches, "t", "c", skipped=["Dense (needs: pip install)"])
    assert "Not run here: Dense (needs: pip install)" in text and "questions failed" not in text
    for run in searches:
        assert run["run_id"] in text and interval(run["metrics"]["recall@1"]["macro"]) in text
    assert "xact match by sub-task" not in text
    text = render_page(answering, "t", "c")
    assert "Exact match by sub-task in %, 1,000 rules" in text and ">900<" in text


@pytest.mark.parametrize("count", [1, 2])
def test_a_page_of_one_run_or_of_runs_that_failed_is_sensible(searches, count):
    runs = searches[:count]
    assert "BM25" in render_page(runs, "t", "c")
    for run in runs:
        run["metrics"], run["n"] = {}, {"scheduled": 22, "scored": 0, "failed": 22}
        run["details"], run["outcomes"] = {"by_step": {}}, {"failed": 22}
    page = render_page(runs, "t", "c")
    assert f"{22 * count} questions failed" in page and "(22 failed)" in page and "<img" not in page


def test_settings_are_never_mixed(searches):
    other = copy.deepcopy(searches)
    for run in other:
        run["spec"]["split"] = "test"
    both = settings(searches + other)
    assert [len(setting.runs) for setting in both] == [12, 12]
    assert {run["spec"]["split"] for run in both[0].runs} == {"mini"}
    # The same cell with pools made in another way is no point of the same curve.
    nested = copy.deepcopy(searches[:1])
    nested[0]["spec"]["pool_within"] = 1500
    nested[0]["spec"]["method"]["retriever"]["k1"] = 0.9  # a cell of its own, so only the pools differ
    assert [len(setting.runs) for setting in settings(searches + nested)] == [12, 1]


def test_variants_of_one_method_are_told_apart(searches):
    variant = copy.deepcopy(searches[:4])
    for run in variant:
        run["spec"]["method"]["retriever"]["k1"] = 0.9
    (setting,) = settings(searches + variant)
    assert len({line.label for line in setting.lines}) == 4 > len({line.key for line in setting.lines})


def test_runs_of_fol_and_nl_with_an_adapter_each_are_one_method(answering):
    runs = answering[:4]
    for run in runs:
        run["spec"]["method"] = {"name": "dynarule", "adapter": run["spec"]["representation"]}
    (setting,) = settings(runs)
    (line,) = setting.lines
    assert line.label == "DynaRule, tiny" and list(line.runs.values()) == runs


def test_labels_name_the_model_only_where_models_differ(committed):
    (whole,) = settings(committed("arena"))
    assert whole.model == "tiny" and whole.title().endswith(", model tiny")
    assert not any("tiny" in line.label for line in whole.lines)
    with_model = next(run for run in whole.runs if run["spec"]["method"].get("model"))
    with_model["spec"]["method"]["model"]["model"] = "another"
    (mixed,) = settings(whole.runs)
    assert mixed.model is None and "model" not in mixed.title()
    assert any(line.label.endswith(", tiny") for line in mixed.lines)
