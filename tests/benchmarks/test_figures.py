"""Figures: drawn to scale from the results, and only those that the results can fill."""

import copy
import re

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.report.figures import figures
from rwbench.report.measure_charts import CostPoint, HeatMap, LayerCurve, cost_points, heat_maps, layer_lines
from rwbench.report.page import render_page
from rwbench.report.palette import STYLES
from rwbench.report.setting import settings
from rwbench.report.summary import headline
from rwbench.report.terminal import markdown_table
from rwbench.retrievers.bm25 import BM25
from rwbench.run.runner import run_spec

STYLE = STYLES["dynarule"]


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
    assert titles[:2] == ["Recall@1 against pool size", "Recall@1 by sub-task, 1,000 rules"]
    assert not [title for title in titles if "xact" in title or "ttention" in title]
    assert {"Recall@1 by step of the proof", "Recall@1 by rule type"} <= set(titles)
    by_type = next(figure for figure in figures(setting) if figure.title == "Recall@1 by rule type")
    assert "BM25 (split identifiers), entity2attr: " in str(by_type.drawing)
    assert titles[-1] == "Cost against recall@1"


def test_a_method_that_answers_leads_with_its_answers(results):
    (setting,) = settings(answering(results))
    found = figures(setting)
    titles = [figure.title for figure in found]
    assert titles[0] == "Exact match against pool size"
    assert {"Exact match by hop", "Rule attention by step", "Attention entropy by layer"} <= set(titles)
    assert [figure.folded for figure in found if "ttention on gold" in figure.title] == [True] * 3
    assert "DynaRule, tiny answers 43.0 % of the sub-questions" in " ".join(headline(setting))
    assert markdown_table(setting).startswith("Exact match in % (95 % interval)")
    cost = next(figure for figure in found if figure.title.startswith("Cost"))
    assert "43.0 % at 1e+03 tokens per question" in str(cost.drawing)
    entropy = next(figure for figure in found if figure.title.startswith("Attention entropy"))
    assert entropy.caption.count("layer 2") == 4


def test_runs_of_fol_and_nl_with_an_adapter_each_are_one_method(results):
    runs = answering(results)[4:]
    for run in runs:
        run["spec"]["method"] = {"name": "dynarule", "adapter": run["spec"]["representation"]}
    (setting,) = settings(runs)
    assert [view.label for view in setting.methods().values()] == ["DynaRule, tiny"]
    (method,) = setting.methods()
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
        assert len(maps) == 8
        assert "DynaRule, tiny" in shown.caption and shown.caption.endswith(" 100 rules.")
        assert shown.title == "Rule attention by step"


def test_heat_map_cells_are_as_dark_as_heavy_and_carry_their_numbers():
    figure = str(heat_maps([HeatMap("two", [[0.8, 0.1], [0.2, 0.7]], [4, 0])], "label"))
    assert re.findall(r"fill-opacity:([\d.]+)", figure) == [
        "0.800",
        "0.100",
    ]  # no retrieval made the second row
    assert re.findall(r">(0\.\d\d)<", figure) == ["0.80", "0.10"]
    places = re.findall(r'<rect class="cell" x="([\d.]+)" y="([\d.]+)"', figure)
    assert places[0][1] == places[1][1]
    assert float(places[0][0]) < float(places[1][0])


def test_the_lowest_layer_is_marked():
    curve = LayerCurve("c", STYLE, [0, 2, 5], [3.0, 1.0, 2.0], [0.0, 0.0, 0.0])
    figure = str(layer_lines([curve], "label"))
    assert "lowest entropy 1.00 nats at layer 2" in figure
    path = re.search(r'class="curve"[^>]* points="([^"]+)"', figure)[1]
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, pair.split(","))) for pair in path.split()]
    assert (x2 - x1) / (x1 - x0) == pytest.approx(3 / 2, abs=0.01)  # layers 0, 2 and 5
    assert (y1 - y0) / (y2 - y0) == pytest.approx(2, abs=0.01)


def test_cost_is_on_a_log_scale():
    points = [CostPoint(STYLE, cost, value, "t") for cost, value in ((10, 0.0), (100, 0.5), (1000, 1.0))]
    figure = str(cost_points(points, "tokens", "label"))
    (x0, y0), (x1, y1), (x2, y2) = [
        tuple(map(float, pair)) for pair in re.findall(r'class="dot"[^>]*cx="([\d.]+)" cy="([\d.]+)"', figure)
    ]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y2 < y0


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
