"""The page: numbers, escaping, nothing from outside, settings kept apart."""

import base64
import copy
import csv
import hashlib
import io
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rwbench.methods.retrieve import Retrieve
from rwbench.report.charts import (
    Line,
    Point,
    draw_lines,
    inline_svg,
    label_ends,
    number_axis,
    panels,
    share_axis,
)
from rwbench.report.grids import all_runs
from rwbench.report.page import render_page
from rwbench.report.setting import settings
from rwbench.report.style import STYLES, styles
from rwbench.report.tables import csv_text, headline, markdown_table, markdown_times, percent, print_report
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.runner import run_spec
from rwbench.score.results import find_results

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
    assert [load for load in page.loads if not load.startswith(("data:text/csv;base64,", "#"))] == []
    assert not re.search(r"https?://|url\(|@import", text)
    assert page.tags.count("svg") >= 2
    # What is not of the page itself cannot run: only its own script is allowed, by its hash.
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
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
        interval = f"{percent(e['ci_low'])}–{percent(e['ci_high'])}"
        assert f'>{percent(e["value"])} <span class="ci">{interval}</span>' in text
    best = next(
        r["metrics"]["recall@1"]["macro"]["value"]
        for r in results
        if r["method"]["key"] == "bm25-aware"
        and r["spec"]["representation"] == "nl"
        and r["spec"]["pool_size"] == 1000
    )
    (setting,) = settings(results)
    sentence = " ".join(headline(setting))
    assert "With 1,000 rules, BM25" in sentence
    assert f"{100 * best:.1f} %" in sentence
    assert "BM25 (naive tokens) gets 0 % (FOL)" in sentence
    assert "Random rules (floor)" in sentence


@pytest.mark.parametrize("folder", ["arena", "held_out_550"])
def test_the_headline_names_the_plain_method_and_no_ablation_or_second_training(folder):
    """`make demo` once said of DynaRule+ what it has without its look-ahead."""
    runs = find_results(Path(__file__).parents[3] / "benchmarks/results" / folder)
    (setting,) = settings(runs)
    row = re.search(
        r"(?:^|\. )DynaRule\+([^.]*?) (?:gets|answers) ([\d.]+) % \(FOL\)", " ".join(headline(setting))
    )
    plain = [
        run
        for run in runs
        if run["method"]["label"] == "DynaRule+, tiny"
        and (run["spec"]["representation"], run["spec"]["pool_size"]) == ("fol", 10_000)
    ]
    assert row is not None and "," not in row[1].replace(", tiny", "")
    assert float(row[2]) == round(100 * plain[0]["metrics"]["exact_match"]["macro"]["value"], 1)


def test_failures_and_missing_encoders_are_shown(results):
    broken = copy.deepcopy(results)
    broken[0]["n"] = {"scheduled": 22, "scored": 19, "failed": 3}
    text = render_page(broken, "t", "c", skipped=["Dense (needs: pip install)"])
    assert "3 questions failed" in text
    assert "(3 failed)" in text
    assert "Not run here: Dense (needs: pip install)" in text
    assert "questions failed" not in render_page(results, "t", "c")


def test_tables_mark_a_run_whose_questions_failed(results):
    (setting,) = settings(results)
    whole = markdown_table(setting)
    assert "*" not in whole and "failed" not in whole
    broken = copy.deepcopy(results)
    broken[0]["n"] = {"scheduled": 22, "scored": 19, "failed": 3}
    console = Console(record=True, width=200)
    print_report(broken, console)
    for text in (markdown_table(settings(broken)[0]), console.export_text()):
        assert text.count("*") == 2 and "* without questions that failed" in " ".join(text.split())


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
    views = list(setting.methods.values())
    assert len({view.label for view in views}) == len({view.key for view in views}) == 4
    drawn = styles(view.key for view in views)
    assert len({drawn[view.key] for view in views}) == 4
    assert len(all_runs(setting).rows) == 16


def test_styles_are_fixed_and_distinct_without_colour():
    assert styles(["rrf", "dense"])["dense"] == styles(["dense", "new"])["dense"] == STYLES["dense"]
    assert len({(style.marker, style.line) for style in STYLES.values()}) == len(STYLES)
    many = styles([f"method {i}" for i in range(30)])
    assert len({many[f"method {i}"] for i in range(30)}) == 30


VISION = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
}
"""Machado, Oliveira and Fernandes 2009, on linear RGB."""
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    x, y, z = np.cbrt(np.maximum(XYZ @ np.clip(rgb, 0, 1) / (0.9505, 1, 1.089), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_contender_has_a_colour_that_any_reader_can_tell():
    """Ten colours, on white and dark paper; what shares one has lines of another kind, and markers of its own."""
    owner = {}
    for key, style in STYLES.items():
        if style.line != ":":
            owner.setdefault(style.colour, []).append((style.line, key.removeprefix("rag-")))
    assert len(owner) == 10
    for shared in owner.values():
        # A retriever alone has the colour of the method that reads what it finds.
        assert len({name for _, name in shared}) == 1 or len({line for line, _ in shared}) == len(shared)
    for matrix in map(np.array, VISION.values()):
        seen = [lab(matrix @ linear(colour)) for colour in owner]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15
    for paper in ("#ffffff", "#14181c"):
        for colour in owner:
            low, high = sorted(float(XYZ[1] @ linear(each)) + 0.05 for each in (colour, paper))
            assert high / low > 1.85, (colour, paper)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0004, "<0.1"), (0.565, "56.5"), (0.9999, "99.9"), (1, "100"), (0.001, "0.1")],
)
def test_only_exact_values_look_exact(value, text):
    assert percent(value) == text


def drawn(*lines, intervals=False):
    with panels() as (figure, (axes,)):
        axes.set_xscale("log")
        share_axis(axes)
        draw_lines(axes, lines, intervals)
        number_axis(axes, [100, 1000, 10000])
        label_ends(axes, lines)
        return str(inline_svg(figure, "a <label>"))


def test_numbers_below_an_axis_can_be_read():
    with panels() as (_, (axes,)):
        number_axis(axes, [0.5, 10_000, 1_000_000, 4_936_113])
        assert [each.get_text() for each in axes.get_xticklabels()] == ["0.5", "10,000", "1 M", "4.94 M"]


@pytest.mark.parametrize("values", [[1.0] * 5, [0.1, 0.97, 0.98, 0.99, 1.0], [n / 22 for n in range(23)], []])
def test_values_at_the_right_edge_stand_apart_and_beside_the_axes(values):
    with panels() as (_, (axes,)):
        share_axis(axes)
        label_ends(axes, [Line("s", STYLES["rrf"], [Point(100, value, 0, 1, "a")]) for value in values])
        written = sorted((text.xy[1], text.get_text()) for text in axes.texts)
    assert [text for _, text in written] == [f"{100 * value:.0f}" for value in sorted(values)]
    places = [place for place, _ in written]
    assert all(0 <= place <= 1 + 1e-9 for place in places)
    assert all(b - a >= 0.04 for a, b in itertools.pairwise(places))


def path(figure, colour, width):
    found = re.findall(rf'<path d="([^"]+)"[^>]*stroke: {colour}; stroke-width: {width}', figure)
    return [[tuple(map(float, xy)) for xy in re.findall(r"[ML] ([\d.]+) ([\d.]+)", d)] for d in found]


def test_curves_are_drawn_to_scale():
    points = [
        Point(100, 0.5, 0.4, 0.6, "a"),
        Point(10000, 0, 0, 0.1, "c"),
        Point(1000, 0.25, 0.2, 0.3, "b <&>"),
    ]
    figure = drawn(Line("s", STYLES["rrf"], points), intervals=True)
    ((x0, y0), (x1, y1), (x2, y2)) = next(
        line for line in path(figure, STYLES["rrf"].colour, "1.7") if len(line) == 3
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)  # log scale: equal steps for equal factors
    assert (y1 - y0) == pytest.approx(y2 - y1, abs=0.2)  # 0.50 -> 0.25 -> 0.00
    assert y2 > y1 > y0  # up is better
    whiskers = path(figure, STYLES["rrf"].colour, "1.1") or path(
        figure, STYLES["rrf"].colour + "; stroke-opacity: 0.55", "1.1"
    )
    whiskers = re.findall(r'<path d="M ([\d.]+) ([\d.]+) L \1 ([\d.]+) "[^>]*stroke-opacity: 0.55', figure)
    lengths = [float(low) - float(high) for _, low, high in whiskers]
    assert lengths == pytest.approx(
        [0.2 / 0.5 * (y2 - y0), 0.1 / 0.5 * (y2 - y0), 0.1 / 0.5 * (y2 - y0)], abs=0.2
    )
    assert "stroke-opacity" not in drawn(Line("s", STYLES["rrf"], points))
    assert [*re.findall(r"<title>(.*?)</title>", figure)] == ["a", "b &lt;&amp;&gt;", "c"]
    assert 'aria-label="a &lt;label&gt;"' in figure
    assert figure == drawn(Line("s", STYLES["rrf"], points), intervals=True)


def test_a_curve_that_ends_early_has_no_number_at_the_right_edge():
    short = Line("s", STYLES["rrf"], [Point(100, 0.37, 0.3, 0.4, "a")])
    long = Line("l", STYLES["dense"], [Point(100, 0.5, 0.4, 0.6, "a"), Point(1000, 0.25, 0.2, 0.3, "b")])
    ends = re.findall(r"fill: (#\w+)[^>]*>(\d+)<", drawn(short, long))
    assert ends == [(STYLES["dense"].colour, "25")]


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
        "| BM25",
        "| BM25 (naive tokens)",
        "| Random rules (floor)",
    ]


def test_labels_name_the_model_only_where_models_differ():
    folder = Path(__file__).parents[3] / "benchmarks/results/arena"
    (whole,) = settings(find_results(folder))
    assert whole.model == "tiny" and whole.title().endswith(", model tiny")
    assert not any("tiny" in view.label for view in whole.methods.values())
    asked = next(run for run in whole.runs if run["spec"]["method"].get("model"))
    asked["spec"]["method"]["model"]["model"] = "another"
    (mixed,) = settings(whole.runs)
    assert mixed.model is None and "model" not in mixed.title()
    assert any(view.label.endswith(", tiny") for view in mixed.methods.values())


def test_strict_match_stands_beside_exact_match():
    """In every cell, of the same run."""
    folder = Path(__file__).parents[3] / "benchmarks/results/arena"
    (setting,) = settings(find_results(folder))
    rows = markdown_table(setting).splitlines()[4:]
    for run in setting.runs:
        exact, strict = (run["metrics"][name]["macro"]["value"] for name in ("exact_match", "strict_match"))
        row = next(row for row in rows if row.startswith(f"| {setting.view(run).label} |"))
        place = 2 * setting.sizes.index(run["spec"]["pool_size"]) + (run["spec"]["representation"] == "nl")
        cell = row.split(" | ")[1 + place].strip(" |")
        assert cell.startswith(f"{percent(exact)} (") and cell.endswith(f"), {percent(strict)}")


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
        "| BM25 | - | - | 8.0 |",
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
