"""Figures: drawn to scale from the results, and only those that the results can fill."""

import copy
import re

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.report.figures import parts
from rwbench.report.grids import attention, by_part
from rwbench.report.page import render_page
from rwbench.report.setting import settings
from rwbench.report.style import STYLES
from rwbench.report.tables import headline, markdown_table
from rwbench.retrievers.bm25 import BM25
from rwbench.run.runner import run_spec

COLOUR = STYLES["dynarule"].colour


def figures(setting):
    return parts(setting, {})


def drawing(part):
    return "".join(map(str, part.drawings))


def places(figure):
    """Where the markers of the DynaRule lines are, by hover text."""
    found = re.findall(r'<g><title>([^<]*)</title>.*?<use href="#\w+" x="([\d.]+)" y="([\d.]+)"', figure)
    return {tip: (float(x), float(y)) for tip, x, y in found}


@pytest.fixture(scope="module")
def results(workspace, tmp_path_factory):
    from rwbench.recipes import Options

    options = Options(workspace.source, limit=1)
    out = tmp_path_factory.mktemp("runs")
    return [
        run_spec(options.spec(method, form, size, scope), workspace, out)
        for method in (Solver(), Retrieve(BM25()))
        for form in ("fol", "nl")
        for size, scope in ((100, "question"), (1000, "fold"))
    ]


def answering(results):
    """The searches as a method that answers, measures attention and counts tokens; values of its own."""
    runs = copy.deepcopy(results)
    for run in runs[4:]:
        run["method"] = {"key": "dynarule", "label": "DynaRule, tiny"}
        run["metrics"]["exact_match"] = copy.deepcopy(runs[0]["metrics"]["exact_match"])
        run["metrics"]["exact_match"]["macro"] |= {"value": 0.43, "ci_low": 0.4, "ci_high": 0.5}
        run["usage"] = {
            "prompt_tokens": {"total": 11, "mean": 900.0},
            "completion_tokens": {"total": 1, "mean": 100.0},
        }
        run["measures"] = {
            "rule_entropy": {"layers": [0, 2, 5], "mean": [3.0, 1.0, 2.0], "std": [0.1, 0.2, 0.3], "n": 4},
            "rule_attention": {"2": {"weights": [[0.8, 0.1], [0.2, 0.7]], "n": [4, 3]}},
        }
    return runs


def test_retrieval_runs_have_recall_figures_and_no_other(results):
    (setting,) = settings(results)
    titles = [figure.title for figure in figures(setting)]
    assert titles[:2] == ["Recall@1 against pool size", "Recall@1 by sub-task in %, 1,000 rules"]
    assert not [title for title in titles if "xact" in title or "ttention" in title]
    assert {"Recall@1 by step and by rule type", "Cost against recall@1", "What the time went to"} <= set(
        titles
    )
    grid = next(part for part in figures(setting) if "rule type" in part.title).grids[0]
    assert {"step 1", "entity2attr"} <= set(grid.columns)
    assert {row.cells[0].text for row in grid.rows} == {
        "BM25",
        "Symbolic solver (ceiling)",
    }


def test_a_method_that_answers_leads_with_its_answers(results):
    (setting,) = settings(answering(results))
    found = figures(setting)
    titles = [figure.title for figure in found]
    assert titles[0] == "Exact match against pool size"
    assert {"Exact match by hop", "Rule attention by step", "Attention entropy by layer"} <= set(titles)
    (others,) = [figure for figure in found if "other runs" in figure.title]
    assert others.folded and len(others.grids) == 3
    assert "DynaRule, tiny answers 43.0 % of the sub-questions" in " ".join(headline(setting))
    assert markdown_table(setting).startswith("Exact match in % (95 % interval)")
    cost = next(figure for figure in found if figure.title.startswith("Cost"))
    assert "43.0 % at 1e+03 tokens per question" in drawing(cost)
    entropy = next(figure for figure in found if figure.title.startswith("Attention entropy"))
    assert entropy.caption.count("layer 2") == 4


def test_runs_of_fol_and_nl_with_an_adapter_each_are_one_method(results):
    runs = answering(results)[4:]
    for run in runs:
        run["spec"]["method"] = {"name": "dynarule", "adapter": run["spec"]["representation"]}
    (setting,) = settings(runs)
    assert [view.label for view in setting.methods.values()] == ["DynaRule, tiny"]
    (method,) = setting.methods
    assert setting.find(method, "fol", 100) is runs[0]
    assert setting.find(method, "nl", 1000) is runs[3]


def test_the_one_map_that_is_open_is_dynarule_s_on_the_fewest_rules(results):
    runs = answering(results)
    for run in runs[:4]:
        run["method"] = {"key": "kblam", "label": "KBLaM, tiny"}
        run["measures"] = {"rule_attention": {"2": {"weights": [[0.0, 0.0], [0.0, 0.0]], "n": [4, 3]}}}
    for order in (runs, runs[::-1]):
        (setting,) = settings(order)
        maps = [figure for figure in figures(setting) if "Rows: retrievals" in figure.caption]
        (shown,) = [figure for figure in maps if not figure.folded]
        assert sum(len(figure.grids) for figure in maps) == 8
        (grid,) = shown.grids
        assert grid.title.startswith("DynaRule, tiny, ") and grid.title.endswith(" 100 rules: 2 steps")
        assert shown.title == "Rule attention by step"


def test_attention_cells_are_as_dark_as_heavy_and_carry_their_numbers():
    grid = attention([[0.8, 0.1], [0.2, 0.7]], [4, 0], "two")
    (row,) = grid.rows  # no retrieval made the second
    assert grid.columns == ["", "gold 1", "gold 2"]
    assert [(cell.text, cell.shade) for cell in row.cells] == [("step 1", None), ("0.80", 0.8), ("0.10", 0.1)]
    assert row.cells[2].tip == "retrieval 1 gives the gold rules of step 2 the weight 0.100 (n = 4)"


def test_the_table_by_sub_task_holds_the_results_and_says_how_sure_they_are(results):
    (setting,) = settings(results)
    fol, nl = by_part(setting, "recall@1", 1000, {"multi_hop_2": "hop 2", "single_rule": "single"})
    assert (fol.title, nl.title) == ("First-order logic (FOL)", "Natural language (NL)")
    run = next(
        r
        for r in results
        if r["method"]["key"] == "bm25-aware"
        and r["spec"]["representation"] == "nl"
        and r["spec"]["pool_size"] == 1000
    )
    row = next(row for row in nl.rows if row.cells[0].text == run["method"]["label"])
    wanted = [run["metrics"]["recall@1"]["by_subtask"][name] for name in ("multi_hop_2", "single_rule")]
    assert [cell.shade for cell in row.cells[1:]] == [e["value"] for e in wanted]
    assert all(f"n = {e['n']}" in cell.tip for cell, e in zip(row.cells[1:], wanted, strict=True))
    part = next(part for part in figures(setting) if "by sub-task" in part.title)
    assert part.caption.startswith("n = 1 per cell, 95 % intervals of ± ")


def test_the_lowest_layer_is_ringed_and_layers_are_to_scale(results):
    (setting,) = settings(answering(results)[4:6])
    part = next(figure for figure in figures(setting) if figure.title.startswith("Attention entropy"))
    found = places(drawing(part))
    (x0, y0), (x1, y1), (x2, y2) = (
        next(place for tip, place in found.items() if f"layer {layer}: {mean} nats" in tip)
        for layer, mean in ((0, "3.00"), (2, "1.00"), (5, "2.00"))
    )
    assert (x2 - x1) / (x1 - x0) == pytest.approx(3 / 2, abs=0.02)
    assert (y1 - y0) / (y2 - y0) == pytest.approx(2, abs=0.02)
    ring = re.search(r'<use href="#\w+" x="([\d.]+)" y="([\d.]+)" style="fill-opacity: 0', drawing(part))
    assert (float(ring[1]), float(ring[2])) == pytest.approx((x1, y1), abs=0.1)


def test_cost_is_on_a_log_scale(results):
    runs = answering(results)[4:6] + answering(results)[6:7]
    for run, tokens, value in zip(runs, (10, 100, 1000), (0.0, 0.5, 1.0), strict=True):
        run["spec"]["representation"], run["spec"]["pool_size"] = "fol", tokens
        run["usage"] = {"prompt_tokens": {"total": tokens, "mean": tokens}}
        run["metrics"]["exact_match"]["macro"]["value"] = value
    part = next(figure for figure in figures(settings(runs)[0]) if figure.title.startswith("Cost"))
    (x0, y0), (x1, y1), (x2, y2) = sorted(places(drawing(part)).values())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y2 < y0


def test_intervals_too_wide_to_read_are_told_and_not_drawn(results):
    runs = answering(results)
    (setting,) = settings(runs)
    curve = figures(setting)[0]
    assert "whiskers are 95 % intervals" in curve.caption and "stroke-opacity: 0.55" in drawing(curve)
    for run in runs:
        run["metrics"]["exact_match"]["macro"] |= {"ci_low": 0.1, "ci_high": 0.7}
    curve = figures(settings(runs)[0])[0]
    assert "95 % intervals of ± 30 points (median) are too wide to draw" in curve.caption
    assert "stroke-opacity" not in drawing(curve)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_page_of_one_run_or_of_runs_that_failed_is_sensible(results, keep):
    one = copy.deepcopy(results[4 : 4 + keep])
    assert "BM25" in render_page(one, "t", "c")
    for run in one:
        run["metrics"], run["n"] = {}, {"scheduled": 11, "scored": 0, "failed": 11}
        run["details"], run["outcomes"] = {"by_step": {}}, {"failed": 11}
    page = render_page(one, "t", "c")
    assert f"{11 * keep} questions failed" in page
    assert "No figures" in page
    assert '<svg class="figure"' not in page
