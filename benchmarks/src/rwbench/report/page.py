"""From results to one HTML page that works from disk and loads nothing: sentences, figures and tables."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context

from ..score.results import Results
from ..score.samples import OUTCOMES
from . import rows
from .figures import STYLE, by_size, drawn
from .setting import Setting, settings
from .tables import headline


def render_page(results: Sequence[Results], title: str, command: str, skipped: Sequence[str] = ()) -> str:
    """Return the page of some results as one HTML string with no outside resource.

    ``command`` makes these numbers again; ``skipped`` says what did not run here, and what to type to have it run.
    """
    return rendered(
        "report",
        "report",
        title=title,
        command=command,
        skipped=list(skipped),
        sections=[_section(setting) for setting in settings(results)],
        outcomes=OUTCOMES,
        environment=results[0]["environment"],
    )


def _section(setting: Setting) -> dict[str, Any]:
    size = setting.sizes[-1]
    with rc_context(fname=STYLE):
        figure = by_size(setting) if len(setting.sizes) > 1 else None
        svg = drawn(figure, "svg", bbox_inches="tight") if figure else b""
    lead = setting.lead.replace("_", " ").capitalize()
    tables: dict[str, Callable[[Results], rows.Cells]] = {
        "All runs, in % with 95 % intervals": rows.scores,
        f"{lead} by sub-task in %, {size:,} rules": lambda run: rows.by_subtask(setting, run),
        "Answers without a box, and other outcomes: questions": rows.outcomes,
        "Cost: mean per question": rows.cost,
    }
    frames = {title: rows.run_table(setting, cells) for title, cells in tables.items()}
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "figure": svg and f"data:image/svg+xml;base64,{b64encode(svg).decode()}",
        "tables": [(title, _html(frame)) for title, frame in frames.items() if not frame.empty],
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "data": setting.spec["data"],
    }


def _html(frame: pd.DataFrame) -> Markup:
    """Return a frame as an HTML table; every text of it is escaped."""
    with pd.option_context("display.max_colwidth", None):
        return Markup(frame.to_html(index=False, border=0, escape=True))


def rendered(room: str, name: str, **values: Any) -> str:
    """Return a room's template with its style sheet; everything is escaped, and an unknown name is an error."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader(f"rwbench.{room}", "templates"),
    )
    style = files(f"rwbench.{room}").joinpath("templates", f"{name}.css").read_text(encoding="utf-8")
    return environment.get_template(f"{name}.html.j2").render(style=Markup(style), **values)
