"""Figures: drawn to scale from the results; the front page's is drawn again; colours that any reader can tell."""

import itertools
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from rwbench.cli.app import app
from rwbench.report import figures
from rwbench.report.charts import (
    Line,
    Point,
    draw_lines,
    drawing_style,
    label_ends,
    number_axis,
    share_axis,
    stacked,
)
from rwbench.report.setting import settings
from rwbench.report.style import STYLES, styles
from rwbench.score.results import find_results
from typer.testing import CliRunner

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIGURE = BENCHMARKS / "docs" / "accuracy.png"
RESULTS = BENCHMARKS / "results" / "arena"


def draw(path):
    return CliRunner().invoke(app, ["report", str(RESULTS), "--figure", str(path)])


def test_the_command_draws_the_front_figure_again_with_the_same_bytes(tmp_path):
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        result = draw(tmp_path / name)
        assert result.exit_code == 0, result.output
    for form in ("png", "svg"):
        assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes()
    assert (tmp_path / "a.csv").read_text() == FIGURE.with_suffix(".csv").read_text()
    committed, again = (matplotlib.image.imread(path)[..., :3] for path in (FIGURE, tmp_path / "a.png"))
    assert committed.shape == again.shape
    # Other versions of the renderer smooth edges in other ways.
    assert np.abs(committed - again).mean() < 0.01
    assert FIGURE.stat().st_size < 200_000


def test_the_numbers_beside_it_are_those_of_the_results():
    table = pd.read_csv(FIGURE.with_suffix(".csv"))
    expected = {
        (
            run["method"]["label"].replace(", tiny", ""),
            run["spec"]["representation"].upper(),
            run["spec"]["pool_size"],
        ): [run["metrics"]["exact_match"]["macro"][name] for name in ("value", "ci_low", "ci_high")]
        for run in find_results(RESULTS)
    }
    rows = {tuple(row[:3]): list(row[3:]) for row in table.itertuples(index=False, name=None)}
    assert rows == expected and len(rows) == len(table)


def test_another_format_is_refused(tmp_path):
    done = draw(tmp_path / "a.gif")
    assert done.exit_code == 2
    assert "a figure is written as .svg, .png or .pdf, got 'a.gif'" in done.stderr


def test_every_name_lies_within_the_figure_and_can_be_read_on_a_phone():
    """At 390 pixels, letters of eleven or more; one line a method that competes, at its best setting."""
    (setting,) = settings(find_results(RESULTS))
    with drawing_style():
        figure = figures.by_size(setting)
        FigureCanvasAgg(figure).draw()
    labels = [text for axes in figure.axes for text in axes.texts]
    names = {text.get_text() for text in labels}
    assert len(labels) == 2 * 8 and {"97 DynaRule+", "92 IRCoT both ends", "10 DynaRule (paper)"} < names
    assert min(text.get_fontsize() for text in labels) * 390 / figure.bbox.width >= 11
    for box in (text.get_window_extent() for text in labels):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def drawn_at(axes, colour):
    """The points of the lines of a colour."""
    lines = [line for line in axes.get_lines() if to_hex(line.get_color()) == colour]
    return [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in lines]


def test_time_and_entropy_are_those_of_the_runs(answering):
    for run, seconds in zip(answering, (11.0, 22.0) * 4, strict=True):
        run["timing"]["seconds"] = seconds
    (setting,) = settings(answering)
    assert figures.over_time(setting) is None  # one method competes: nothing to compare
    for run in answering[4:]:
        run["method"] = {"key": "kblam", "label": "KBLaM"}
    (setting,) = settings(answering)
    panel = figures.over_time(setting).axes[0]
    ((mark,),) = drawn_at(panel, STYLES["dynarule"].colour)
    assert mark == (pytest.approx(22 / answering[1]["n"]["scored"]), 0.43) and panel.get_xscale() == "log"
    (panel,) = figures.entropy(setting).axes
    points, ring = (
        drawn_at(panel, STYLES["dynarule"].colour)[0],
        drawn_at(panel, STYLES["dynarule"].colour)[-1],
    )
    assert points == [(0, 3.0), (2, 1.0), (5, 2.0)] and ring == [(2, 1.0)]  # the lowest layer
    assert figures.entropy(*settings(answering[4:])) is None


def test_numbers_below_an_axis_can_be_read():
    _, (axes,) = stacked(["t"])
    number_axis(axes, [0.5, 10_000, 1_000_000, 4_936_113])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.5", "10,000", "1 M", "4.94 M"]


@pytest.mark.parametrize("values", [[1.0] * 5, [0.1, 0.97, 0.98, 0.99, 1.0], [n / 22 for n in range(23)], []])
def test_values_at_the_right_edge_stand_apart_and_beside_the_axes(values):
    _, (axes,) = stacked(["t"])
    share_axis(axes)
    short = Line("short", STYLES["dense"], [Point(10, 0.37)])  # ends early: no number at the edge
    label_ends(
        axes, [*(Line("s, more", STYLES["rrf"], [Point(100, v)]) for v in values), *[short] * bool(values)]
    )
    written = sorted((text.xy[1], text.get_text()) for text in axes.texts)
    assert [text for _, text in written] == [f"{100 * value:.0f} s" for value in sorted(values)]
    places = [place for place, _ in written]
    assert all(0 <= place <= 1 + 1e-9 for place in places)
    assert all(b - a >= 0.04 for a, b in itertools.pairwise(places))


def test_lines_and_whiskers_are_to_scale():
    points = [Point(100, 0.5, 0.4, 0.6), Point(10000, 0, 0, 0.1), Point(1000, 0.25, 0.2, 0.3)]
    colour = STYLES["rrf"].colour
    _, (axes,) = stacked(["t"])
    draw_lines(axes, [Line("s", STYLES["rrf"], points)], intervals=False)
    assert drawn_at(axes, colour) == [[(100, 0.5), (1000, 0.25), (10000, 0)]]
    _, (axes,) = stacked(["t"])
    draw_lines(axes, [Line("s", STYLES["rrf"], points)])
    heights = [(low, high) for (_, low), (_, high) in drawn_at(axes, colour)[1:]]
    assert heights == [(0.4, 0.6), (0.2, 0.3), (0, 0.1)]


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
    """Ten colours on white; what shares one has lines of another kind, and markers of its own."""
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
    for colour in owner:
        assert 1.05 / (float(XYZ[1] @ linear(colour)) + 0.05) > 1.85, colour
