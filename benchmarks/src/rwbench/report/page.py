"""From results to one HTML page that works from disk: numbers, figures, the paper's tables, samples."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..run.data import DataSource
from ..run.samples import OUTCOMES
from ..score.errors import ERROR_CLASSES
from ..score.results import Results
from .browser import SHOWN_RULES, Browser, build_browser
from .figures import drawn_styles, figures
from .paper import beside_all, said
from .setting import Setting, settings
from .summary import TIMES_CAPTION, csv_text, headline, percent, table_metrics, table_rows, times
from .svg import swatch

if TYPE_CHECKING:
    from markupsafe import Markup


def render_page(
    results: Sequence[Results],
    title: str,
    command: str,
    skipped: Sequence[str] = (),
    folder: Path | None = None,
    source: DataSource | None = None,
    recipes: Sequence[tuple[str, Sequence[Results]]] = (),
) -> str:
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
    folder : Path, optional
        Folder of run folders, for the sample browser; without it the page has no samples.
    source : DataSource, optional
        Where questions and rules come from (see `browser.build_browser`).
    recipes : sequence of (name, runs)
        Those of the paper's tables are shown with the paper's numbers.

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
        loader=jinja2.PackageLoader("rwbench.report", "templates"),
    )
    environment.filters["percent"] = percent
    grouped = settings(results)
    browser = _browser(grouped, folder, source)
    tables = [table for name, runs in recipes for table in beside_all(runs, name)]
    return environment.get_template("report.html.j2").render(
        title=title,
        command=command,
        skipped=list(skipped),
        sections=[_section(setting, browser) for setting in grouped],
        tables=tables,
        said=[(name, text) for name, _ in recipes for text in said(name)],
        browser=browser,
        shown_rules=SHOWN_RULES,
        error_classes=ERROR_CLASSES,
        outcome_words=OUTCOMES,
        times_caption=TIMES_CAPTION,
        environment=results[0]["environment"],
        style=asset("report.css"),
        script=asset("report.js") + asset("browser.js"),
    )


def _section(setting: Setting, browser: Browser) -> dict[str, Any]:
    drawn = drawn_styles(setting)
    encoded = base64.b64encode(csv_text(setting).encode()).decode()
    rows = table_rows(setting)
    for row in rows:
        row["errors"] = browser.errors.get(row["run_id"], {})
        row["bad"] = {name: count for name, count in row["outcomes"].items() if name != "ok"}
    steps = sorted({name for row in rows for name in row["by_step"]}, key=int)
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "legend": [(view.label, swatch(drawn[view.key])) for view in setting.methods().values()],
        "figures": figures(setting),
        "metrics": table_metrics(setting),
        "rows": rows,
        "errors": [name for name in ERROR_CLASSES if any(name in row["errors"] for row in rows)],
        "outcomes": [name for name in OUTCOMES if any(name in row["bad"] for row in rows)],
        "costs": sorted({name for row in rows for name in row["usage"]}),
        "times": times(setting),
        "steps": steps,
        "step_titles": [f"step {name}" for name in steps],
        "types": sorted({name for row in rows for name in row["by_rule_type"]}),
        "csv": f"data:text/csv;base64,{encoded}",
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "data": setting.spec["data"],
    }


def _browser(grouped: Sequence[Setting], folder: Path | None, source: DataSource | None) -> Browser:
    if folder is None:
        return Browser()
    runs, labels = [], []
    for setting in grouped:
        views = setting.methods()
        for run in setting.runs:
            spec = run["spec"]
            where = f"{spec['representation'].upper()}, {spec['pool_size']:,} rules"
            other = f", {setting.title()}" if len(grouped) > 1 else ""
            runs.append(run)
            labels.append(f"{views[setting.method_of(run)].label}, {where}{other}")
    return build_browser(runs, labels, folder, source)


def asset(name: str) -> Markup:
    """Return one of the page's own style sheets or scripts, to be put in as it is."""
    from markupsafe import Markup

    return Markup(files("rwbench.report").joinpath("templates", name).read_text(encoding="utf-8"))
