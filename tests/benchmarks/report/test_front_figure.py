"""The figure of the front page: drawn by the command from committed results, with its numbers beside it."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from rwbench.cli.app import app
from rwbench.score.results import find_results
from typer.testing import CliRunner

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIGURE = BENCHMARKS / "docs" / "accuracy.png"
RESULTS = BENCHMARKS / "results" / "arena"


def test_its_numbers_are_those_of_the_results():
    table = pd.read_csv(FIGURE.with_suffix(".csv"))
    found = {
        (
            run["method"]["label"].replace(", tiny", ""),
            run["spec"]["representation"].upper(),
            run["spec"]["pool_size"],
        ): [run["metrics"]["exact_match"]["macro"][name] for name in ("value", "ci_low", "ci_high")]
        for run in find_results(RESULTS)
    }
    rows = {tuple(row[:3]): list(row[3:]) for row in table.itertuples(index=False, name=None)}
    assert rows == found and len(rows) == len(table)


def test_the_command_draws_it_again(tmp_path):
    words = ["report", str(RESULTS), "--figure", str(tmp_path / "again.png")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "again.csv").read_text() == FIGURE.with_suffix(".csv").read_text()
    shown, again = (matplotlib.image.imread(path)[..., :3] for path in (FIGURE, tmp_path / "again.png"))
    assert shown.shape == again.shape
    # Other versions of the renderer smooth edges in other ways.
    assert np.abs(shown - again).mean() < 0.01
    assert FIGURE.stat().st_size < 200_000


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_same_results_give_the_same_bytes(tmp_path, form):
    for name in ("a", "b"):
        done = CliRunner().invoke(app, ["report", str(RESULTS), "--figure", str(tmp_path / f"{name}.{form}")])
        assert done.exit_code == 0, done.output
    assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes()


def test_another_format_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["report", str(RESULTS), "--figure", str(tmp_path / "a.gif")])
    assert done.exit_code == 2
    assert "a figure is written as .svg, .png or .pdf, got 'a.gif'" in done.stderr


def test_every_name_lies_within_the_figure_and_can_be_read_on_a_phone(tmp_path, monkeypatch):
    """At 390 pixels, letters of eleven or more; one line a method that competes, at its best setting."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from rwbench.report import figures as module

    seen = []

    def save(figure, path):
        FigureCanvasAgg(figure).draw()
        labels = [text for axes in figure.axes for text in axes.texts]
        boxes = [text.get_window_extent() for text in labels]
        seen.append((figure.bbox, [text.get_text() for text in labels], boxes))
        assert min(text.get_fontsize() for text in labels) * 390 / figure.bbox.width >= 11

    monkeypatch.setattr(module, "save", save)
    done = CliRunner().invoke(app, ["report", str(RESULTS), "--figure", str(tmp_path / "a.png")])
    assert done.exit_code == 0, done.output
    whole, names, boxes = seen[0]
    assert len(names) == 2 * 8 and {"97 DynaRule+", "92 IRCoT both ends", "10 DynaRule (paper)"} < set(names)
    for box in boxes:
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1 and whole.y0 <= box.y0 < box.y1
