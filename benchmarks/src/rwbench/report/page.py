"""From results to one HTML page that works from disk and loads nothing: sentences, figures and tables."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from ..score.errors import ERROR_CLASSES
from ..score.results import Results
from ..score.samples import OUTCOMES
from . import rows
from .figures import by_size, data_uri, drawing_style
from .mistakes import error_counts
from .paper import NUMBERS, beside_paper
from .setting import Setting, settings
from .tables import headline


def render_page(
    results: Sequence[Results],
    title: str,
    command: str,
    skipped: Sequence[str] = (),
    folder: Path | None = None,
    recipe: str = "",
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
    recipe : str
        One of the paper's tables is shown with the paper's numbers.
    """
    if not results:
        raise ValueError(
            "there are no results to report; run a recipe first, for example `rwbench run smoke`"
        )
    errors, notes = ({}, []) if folder is None else error_counts(results, folder)
    page = template_environment().get_template("report.html.j2")
    return page.render(
        title=title,
        command=command,
        skipped=list(skipped),
        sections=[_section(setting, errors) for setting in settings(results)],
        tables=[
            (name, table.caption, _html(table.frame))
            for name, made in NUMBERS["tables"].items()
            if recipe == f"paper/{made.get('recipe', name)}"
            for table in beside_paper(results, name)
        ],
        notes=notes,
        words={**(ERROR_CLASSES if any(errors.values()) else {}), **OUTCOMES},
        environment=results[0]["environment"],
        style=asset("report.css"),
    )


def _section(setting: Setting, errors: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    size = setting.sizes[-1]
    with drawing_style():
        figure = by_size(setting) if len(setting.sizes) > 1 else None
        drawn = data_uri(figure) if figure else ""
    lead = setting.lead.replace("_", " ").capitalize()
    tables: dict[str, Callable[[Results], rows.Cells]] = {
        "All runs, in % with 95 % intervals": rows.scores,
        f"{lead} by sub-task in %, {size:,} rules": lambda run: rows.by_subtask(setting, run),
        "Recall@1 in % by step of the proof": rows.by_step,
        "Gold rules by step: attention at each retrieval": rows.attention,
        "Entropy of attention by layer, in nats": rows.entropy,
        "How answers go wrong: questions": lambda run: rows.mistakes(run, errors),
        "Cost: mean per question": rows.cost,
    }
    frames = {title: rows.run_table(setting, cells) for title, cells in tables.items()}
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "figure": drawn,
        "tables": [(title, _html(frame)) for title, frame in frames.items() if not frame.empty],
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "data": setting.spec["data"],
    }


def _html(frame: pd.DataFrame) -> Markup:
    """Return a frame as an HTML table; every text of it is escaped."""
    with pd.option_context("display.max_colwidth", None):
        return Markup(frame.to_html(index=False, border=0, escape=True))


def template_environment(room: str = "report") -> jinja2.Environment:
    """Return the environment of a room's templates: everything is escaped, and an unknown name is an error."""
    return jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader(f"rwbench.{room}", "templates"),
    )


def asset(name: str, room: str = "report") -> Markup:
    """Return one of a room's own style sheets or scripts, to be put in as it is."""
    return Markup(files(f"rwbench.{room}").joinpath("templates", name).read_text(encoding="utf-8"))
