"""Figures: drawn to scale from the results; the front page's is drawn again; colours that any reader can tell."""

import itertools
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rwbench.report import figures
from rwbench.report.figures import STYLE, drawn, label_ends, stacked
from rwbench.report.setting import settings
from rwbench.score.results import find_results

from ..command import rwbench

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIGURE = BENCHMARKS / "docs" / "accuracy.png"
RESULTS = BENCHMARKS / "results" / "arena"


def test_the_command_draws_the_front_figure_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rwbench.cli.report.checked_results", find_results)
    rwbench("report", RESULTS, "--figure", tmp_path / "a.png", code=0)
    committed, again = (matplotlib.image.imread(path)[..., :3] for path in (FIGURE, tmp_path / "a.png"))
    assert committed.shape == again.shape
    # Other versions of the renderer smooth edges in other ways.
    assert np.abs(committed - again).mean() < 0.01
    assert FIGURE.stat().st_size < 200_000


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_the_same_figure_gives_the_same_bytes(answering, form):
    with rc_context(fname=STYLE):
        one, other = (drawn(figures.by_size(*settings(answering)), form) for _ in range(2))
    assert one == other


def test_every_name_lies_within_the_figure_and_can_be_read_on_a_phone():
    """At 390 pixels, letters of eleven or more; one line a method that competes, at its best setting."""
    (setting,) = settings(find_results(RESULTS))
    with rc_context(fname=STYLE):
        figure = figures.by_size(setting)
        FigureCanvasAgg(figure).draw()
    labels = [text for axes in figure.axes for text in axes.texts]
    names = {text.get_text() for text in labels}
    assert (
        len(labels) == 2 * 10
        and {"97 DynaRule+", "92 IRCoT both ends", "10 DynaRule (paper)", "47 DynaRule behind premises"}
        < names
    )
    assert min(text.get_fontsize() for text in labels) * 390 / figure.bbox.width >= 11
    for box in (text.get_window_extent() for text in labels):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


@pytest.mark.parametrize("values", [[1.0] * 5, [0.1, 0.97, 0.98, 0.99, 1.0], [n / 22 for n in range(23)], []])
def test_values_at_the_right_edge_stand_apart_and_beside_the_axes(values):
    _, (axes,) = stacked(["t"])
    axes.set_ylim(-0.02, 1.02)
    label_ends(axes, [(value, "C0", "s") for value in values])
    written = sorted((text.xy[1], text.get_text()) for text in axes.texts)
    assert [text for _, text in written] == [f"{100 * value:.0f} s" for value in sorted(values)]
    places = [place for place, _ in written]
    assert all(0 <= place <= 1 + 1e-9 for place in places)
    assert all(b - a >= 0.04 for a, b in itertools.pairwise(places))
