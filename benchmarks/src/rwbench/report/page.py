"""From results to one HTML page that works from disk and loads nothing: numbers, figures, tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..run.data import DataSource
from ..score.errors import ERROR_CLASSES
from ..score.results import Results
from ..score.samples import OUTCOMES
from .charts import swatch
from .figures import parts
from .grids import all_runs, beside_paper
from .mistakes import Counts, error_counts
from .paper import quotes, tables_beside_paper
from .setting import Setting, settings
from .style import styles
from .tables import csv_text, headline

if TYPE_CHECKING:
    import jinja2
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
    """Return the page as one HTML string with no outside resource; a ValueError if there are no results.

    Parameters
    ----------
    results : sequence of Results
    title : str
    command : str
        What makes these numbers again.
    skipped : sequence of str
        What did not run here, and what to type to have it run.
    folder : Path, optional
        Folder of the runs, for error classes of their samples; without it the page has none.
    source : DataSource, optional
        Where questions and rules come from (see `mistakes.error_counts`).
    recipes : sequence of (name, runs)
        Those of the paper's tables are shown with the paper's numbers.
    """
    if not results:
        raise ValueError(
            "there are no results to report; run a recipe first, for example `rwbench run smoke`"
        )
    grouped = settings(results)
    errors, notes = ({}, []) if folder is None else error_counts(results, folder, source)
    tables = [table for name, runs in recipes for table in tables_beside_paper(runs, name)]
    script = asset("report.js")
    return (
        template_environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            command=command,
            skipped=list(skipped),
            sections=[_section(setting, errors) for setting in grouped],
            tables=[(table, beside_paper(table)) for table in tables],
            quotes=[(name, text) for name, _ in recipes for text in quotes(name)],
            notes=notes,
            error_classes=ERROR_CLASSES if any(errors.values()) else {},
            outcome_words=OUTCOMES,
            environment=results[0]["environment"],
            style=asset("report.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _section(setting: Setting, errors: Counts) -> dict[str, Any]:
    drawn = styles(view.key for view in setting.methods.values())
    encoded = base64.b64encode(csv_text(setting).encode()).decode()
    outcomes = {name for run in setting.runs for name in run["outcomes"]}
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "legend": [(view.label, swatch(drawn[view.key])) for view in setting.methods.values()],
        "parts": parts(setting, errors),
        "runs": all_runs(setting),
        "outcomes": outcomes - {"ok"},
        "csv": f"data:text/csv;base64,{encoded}",
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "data": setting.spec["data"],
    }


def template_environment(room: str = "report") -> jinja2.Environment:
    """Return the environment of a room's templates: everything is escaped, and an unknown name is an error."""
    import jinja2

    return jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader(f"rwbench.{room}", "templates"),
    )


def asset(name: str, room: str = "report") -> Markup:
    """Return one of a room's own style sheets or scripts, to be put in as it is."""
    from markupsafe import Markup

    return Markup(files(f"rwbench.{room}").joinpath("templates", name).read_text(encoding="utf-8"))
