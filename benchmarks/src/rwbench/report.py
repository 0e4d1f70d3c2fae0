"""From results to one HTML page that works from disk. Only results.json files are read."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .charts import Panel, Point, Series, dot_rows, recall_curves, swatch
from .palette import Style, styles
from .results import Results
from .scoring import RECALLS
from .summary import (
    MAIN_METRIC,
    TABLE_METRICS,
    Setting,
    csv_text,
    headline,
    macro,
    percent,
    settings,
    table_rows,
)

if TYPE_CHECKING:
    from markupsafe import Markup

REPRESENTATION_NAMES = {"fol": "First-order logic (FOL)", "nl": "Natural language (NL)"}


def curves(setting: Setting, metric: str) -> Markup:
    """Draw a metric against pool size, one panel per representation."""
    drawn = styles(view.key for view in setting.methods().values())
    panels = []
    for representation in setting.representations:
        series = [
            Series(view.label, drawn[view.key], _points(setting, method, view.label, representation, metric))
            for method, view in setting.methods().items()
        ]
        panels.append(Panel(REPRESENTATION_NAMES[representation], [s for s in series if s.points]))
    return recall_curves(panels, f"{metric} against pool size, by method")


def by_subtask(setting: Setting, metric: str, size: int) -> Markup:
    """Draw every sub-task's value at one pool size."""
    drawn = styles(view.key for view in setting.methods().values())
    panels = []
    for representation in setting.representations:
        series = []
        for method, view in setting.methods().items():
            run = setting.find(method, representation, size)
            found = run["metrics"].get(metric, {"by_subtask": {}})["by_subtask"] if run else {}
            points = {name: _point(view.label, name, estimate) for name, estimate in found.items()}
            series.append(Series(view.label, drawn[view.key], points))
        panels.append(Panel(REPRESENTATION_NAMES[representation], [s for s in series if s.points]))
    rows = [(name, name.replace("_", " ")) for name in setting.spec["subtasks"]]
    return dot_rows(panels, rows, f"{metric} by sub-task with {size} rules, by method")


def _points(
    setting: Setting, method: str, label: str, representation: str, metric: str
) -> dict[str | int, Point]:
    points: dict[str | int, Point] = {}
    for size in setting.sizes:
        run = setting.find(method, representation, size)
        estimate = macro(run, metric) if run else None
        if estimate:
            points[size] = _point(label, f"{size:,} rules", estimate)
    return points


def _point(label: str, where: str, estimate: dict[str, Any]) -> Point:
    low, high = percent(estimate["ci_low"]), percent(estimate["ci_high"])
    value = percent(estimate["value"])
    title = f"{label}, {where}: {value} % (95 % interval {low} to {high}, n = {estimate['n']})"
    return Point(estimate["value"], estimate["ci_low"], estimate["ci_high"], title)


def render_page(results: Sequence[Results], title: str, command: str, skipped: Sequence[str] = ()) -> str:
    """Return the page as one HTML string with no outside resource.

    Parameters
    ----------
    results : sequence of dict
        Contents of results.json files.
    title : str
        Heading.
    command : str
        What makes these numbers again.
    skipped : sequence of str
        What did not run here, and what to type to have it run.

    Raises
    ------
    ValueError
        If there are no results.
    """
    if not results:
        raise ValueError(
            "there are no results to report; run a recipe first, for example `rwbench run smoke`"
        )
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader("rwbench", "templates"),
    )
    environment.filters["percent"] = percent
    page = environment.get_template("report.html.j2")
    return page.render(
        title=title,
        command=command,
        skipped=list(skipped),
        sections=[_section(setting) for setting in settings(results)],
        environment=results[0]["environment"],
        metrics=TABLE_METRICS,
        style=_asset("report.css"),
        script=_asset("report.js"),
    )


def _section(setting: Setting) -> dict[str, Any]:
    methods = setting.methods()
    drawn: dict[str, Style] = styles(view.key for view in methods.values())
    encoded = base64.b64encode(csv_text(setting).encode()).decode()
    size = setting.sizes[-1]
    others = [name for name in RECALLS[1:] if any(macro(run, name) for run in setting.runs)]
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "legend": [(view.label, swatch(drawn[view.key])) for view in methods.values()],
        "curves": curves(setting, MAIN_METRIC),
        "more_curves": [(name, curves(setting, name)) for name in others],
        "by_subtask": by_subtask(setting, MAIN_METRIC, size),
        "size": size,
        "rows": table_rows(setting),
        "csv": f"data:text/csv;base64,{encoded}",
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "n": setting.num_questions,
        "data": setting.spec["data"],
    }


def _asset(name: str) -> Markup:
    """Return one of the page's own style sheets or scripts, to be put in as it is."""
    from markupsafe import Markup

    return Markup(files("rwbench").joinpath("templates", name).read_text(encoding="utf-8"))
