"""The page: numbers, escaping, nothing from outside, settings kept apart."""

import copy
import csv
import io
import re
from html.parser import HTMLParser

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.report.charts import Panel, Point, Series, recall_curves
from rwbench.report.page import render_page
from rwbench.report.palette import STYLES, styles
from rwbench.report.setting import settings
from rwbench.report.summary import csv_text, headline, percent, table_rows
from rwbench.report.terminal import markdown_table, markdown_times
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.runner import run_spec

EVIL = '<script>alert("x")</script>&\'"'


@pytest.fixture(scope="module")
def results(workspace, tmp_path_factory):
    from rwbench.recipes import Options

    options = Options(workspace.source, limit=2)
    out = tmp_path_factory.mktemp("runs")
    return [
        run_spec(options.spec(Retrieve(retriever), name, size, scope), workspace, out)
        for retriever in (BM25(), BM25(tokenizer="naive"), Random())
        for name in ("fol", "nl")
        for size, scope in ((100, "question"), (1000, "fold"))
    ]


class Page(HTMLParser):
    """Collects tags, what they load, and text by tag."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [
            value for name, value in attrs if name in ("src", "href", "action", "srcset", "xlink:href")
        ]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_loads_nothing(results):
    text = render_page(results, "RuleWorld: smoke", "rwbench run smoke")
    page = Page(text)
    assert [load for load in page.loads if not load.startswith("data:text/csv;base64,")] == []
    assert not re.search(r"https?://|url\(|@import", text)
    assert page.tags.count("svg") >= 2
    assert {"link", "iframe", "img", "object"}.isdisjoint(page.tags)


def test_every_string_is_escaped(results):
    evil = copy.deepcopy(results)
    for run in evil:
        run["method"]["label"] = EVIL
        run["run_id"] = EVIL
        run["spec"]["data"] = run["spec"]["split"] = run["spec"]["scale"] = EVIL
        run["spec"]["subtasks"] = [EVIL]
        run["environment"]["python"] = run["environment"]["platform"] = EVIL
        run["environment"]["git"] = {"commit": EVIL, "dirty": True}
        for metric in run["metrics"].values():
            metric["by_subtask"] = {EVIL: metric["macro"]}
    text = render_page(evil, EVIL, EVIL, skipped=[EVIL])
    assert EVIL not in text
    assert "<script>alert" not in text
    page = Page(text)
    assert page.tags.count("script") == 1  # the page's own
    assert sum(EVIL in words for words in page.words) >= 10


def test_the_page_says_what_the_results_say(results):
    text = render_page(results, "t", "c")
    for run in results:
        assert run["run_id"] in text
        e = run["metrics"]["recall@1"]["macro"]
        assert f"<b>{percent(e['value'])}</b>" in text
    best = next(
        r["metrics"]["recall@1"]["macro"]["value"]
        for r in results
        if r["method"]["key"] == "bm25-aware"
        and r["spec"]["representation"] == "nl"
        and r["spec"]["pool_size"] == 1000
    )
    (setting,) = settings(results)
    sentence = " ".join(headline(setting))
    assert "With 1,000 rules, BM25 (split identifiers)" in sentence
    assert f"{100 * best:.1f} %" in sentence
    assert "BM25 (naive tokens) gets 0 % (FOL)" in sentence
    assert "Random rules (floor)" in sentence


def test_failures_and_missing_encoders_are_shown(results):
    broken = copy.deepcopy(results)
    broken[0]["n"] = {"scheduled": 22, "scored": 19, "failed": 3}
    text = render_page(broken, "t", "c", skipped=["Dense (needs: pip install)"])
    assert "3 questions failed" in text
    assert "(3 failed)" in text
    assert "Not run here: Dense (needs: pip install)" in text
    assert "questions failed" not in render_page(results, "t", "c")


def test_settings_are_never_mixed(results):
    other = copy.deepcopy(results)
    for run in other:
        run["spec"]["split"] = "test"
    both = settings(results + other)
    assert [len(setting.runs) for setting in both] == [12, 12]
    assert {run["spec"]["split"] for run in both[0].runs} == {"mini"}
    # The same cell with pools made in another way is no point of the same curve.
    nested = copy.deepcopy(results[:1])
    nested[0]["spec"]["pool_within"] = 1500
    nested[0]["spec"]["method"]["retriever"]["k1"] = 0.9  # a cell of its own, so only the pools differ
    assert [len(setting.runs) for setting in settings(results + nested)] == [12, 1]


def test_variants_of_one_method_are_told_apart(results):
    variant = copy.deepcopy(results[:4])
    for run in variant:
        run["spec"]["method"]["retriever"]["k1"] = 0.9
    (setting,) = settings(results + variant)
    views = list(setting.methods().values())
    assert len({view.label for view in views}) == len({view.key for view in views}) == 4
    drawn = styles(view.key for view in views)
    assert len({drawn[view.key] for view in views}) == 4
    assert len(table_rows(setting)) == 16


def test_styles_are_fixed_and_distinct_without_colour():
    assert styles(["rrf", "dense"])["dense"] == styles(["dense", "new"])["dense"] == STYLES["dense"]
    assert len({(style.marker, style.dash, style.colour) for style in STYLES.values()}) == len(STYLES)
    many = styles([f"method {i}" for i in range(30)])
    assert len({many[f"method {i}"] for i in range(30)}) == 30


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0004, "<0.1"), (0.565, "56.5"), (0.9999, "99.9"), (1, "100"), (0.001, "0.1")],
)
def test_only_exact_values_look_exact(value, text):
    assert percent(value) == text


def test_curves_are_drawn_to_scale():
    points = {100: Point(0.5, 0.4, 0.6, "a"), 1000: Point(0.25, 0.2, 0.3, "b"), 10000: Point(0, 0, 0.1, "c")}
    figure = str(recall_curves([Panel("p", [Series("s", STYLES["rrf"], points)])], "label"))
    line = re.search(r'class="curve"[^>]* points="([^"]+)"', figure)[1]
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)  # log scale: equal steps for equal factors
    assert (y1 - y0) == pytest.approx(y2 - y1, abs=0.2)  # 0.50 -> 0.25 -> 0.00
    assert y2 > y1 > y0  # up is better
    band = re.search(r'class="band"[^>]* points="([^"]+)"', figure)[1].split()
    assert len(band) == 6


def test_a_curve_that_ends_early_has_no_number_at_the_right_edge():
    short = Series("s", STYLES["rrf"], {100: Point(0.37, 0.3, 0.4, "a")})
    long = Series("l", STYLES["dense"], {100: Point(0.5, 0.4, 0.6, "a"), 1000: Point(0.25, 0.2, 0.3, "b")})
    figure = str(recall_curves([Panel("p", [short, long])], "label"))
    ends = re.findall(r'class="tick"[^>]*>(\d+)<', figure)
    assert ends == ["25"]


def test_csv_has_every_estimate_and_no_formula(results):
    evil = copy.deepcopy(results[:1])
    evil[0]["method"]["label"] = "=SUM(A1)"
    (setting,) = settings(evil)
    rows = list(csv.DictReader(io.StringIO(csv_text(setting))))
    assert {row["method"] for row in rows} == {"'=SUM(A1)"}
    assert len(rows) == len(evil[0]["metrics"]) * (12 + 4)  # macro, sub-tasks, groups
    macro = next(r for r in rows if (r["metric"], r["subtask"]) == ("recall@1", "macro"))
    assert float(macro["value"]) == evil[0]["metrics"]["recall@1"]["macro"]["value"]


def test_markdown_table_has_a_row_per_method(results):
    (setting,) = settings(results)
    lines = markdown_table(setting).splitlines()
    assert lines[2].startswith("| method | 100 rules, FOL | 100 rules, NL | 1,000 rules, FOL |")
    assert [line.split(" | ")[0] for line in lines[4:]] == [
        "| BM25 (split identifiers)",
        "| BM25 (naive tokens)",
        "| Random rules (floor)",
    ]


def test_the_time_is_summed_by_method_and_stage(results):
    timed = copy.deepcopy(results)
    for run in timed:
        run["timing"] |= {"seconds": 2.0}
        if run["method"]["label"].startswith("Random"):
            run["timing"] |= {"seconds": 500.5, "stages": {"tokenize": 400.0, "retrieve": 0.04}}
    (setting,) = settings(timed)
    lines = markdown_times(setting).splitlines()
    assert lines[2:] == [
        "| method | retrieve | tokenize | in all |",
        "| --- | ---: | ---: | ---: |",
        "| Random rules (floor) | 0.2 | 1,600.0 | 2,002.0 |",
        "| BM25 (split identifiers) | - | - | 8.0 |",
        "| BM25 (naive tokens) | - | - | 8.0 |",
    ]
    page = render_page(timed, "t", "c")
    assert "What the time went to" in page and ">1,600.0<" in page and ">2,002.0<" in page
    for run in timed:  # of version 1: no stages, and no sum of a run that was taken up again
        run["timing"] = {"seconds": None, "finished": ""}
    assert markdown_times(settings(timed)[0]).splitlines()[2] == "| method | in all |"


def test_no_results_is_an_error_with_a_command():
    with pytest.raises(ValueError, match="rwbench run smoke"):
        render_page([], "t", "c")
