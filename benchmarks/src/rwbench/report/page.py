"""From results to one HTML page that works from disk and loads nothing: sentences, figures and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.scoring import SELECTIVE

from ..score.errors import ERROR_CLASSES
from ..score.results import Results
from ..score.samples import OUTCOMES
from ..score.scoring import ANSWER_METRICS, RECALLS
from .figures import by_size, data_uri, drawing_style, entropy
from .mistakes import error_counts
from .paper import PaperTable, quotes, tables_beside_paper
from .setting import MAIN_METRIC, Setting, macro, settings
from .tables import estimates, headline, interval, percent

if TYPE_CHECKING:
    import jinja2
    import pandas as pd
    from markupsafe import Markup

MISSING = "–"
METRICS = (*ANSWER_METRICS, *SELECTIVE, *RECALLS, f"step_{RECALLS[0]}")
Cells = Mapping[str, str]


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
        tables=[(table, _html(beside_paper(table))) for table in tables_beside_paper(results, recipe)],
        quotes=[(recipe, text) for text in quotes(recipe)],
        notes=notes,
        words={**(ERROR_CLASSES if any(errors.values()) else {}), **OUTCOMES},
        environment=results[0]["environment"],
        style=asset("report.css"),
    )


def _section(setting: Setting, errors: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    size, several = setting.sizes[-1], len(setting.sizes) > 1
    with drawing_style():
        drawn = (by_size(setting) if several else None, entropy(setting))
        figures = [data_uri(figure) for figure in drawn if figure is not None]
    lead = setting.lead.replace("_", " ").capitalize()
    tables = {
        "All runs, in % with 95 % intervals": run_table(setting, _scores),
        f"{lead} by sub-task in %, {size:,} rules": run_table(setting, lambda run: _by_subtask(setting, run)),
        "Recall@1 in % by step of the proof": run_table(setting, _by_step),
        "Gold rules by step: attention at each retrieval": run_table(setting, _attention),
        "How answers go wrong: questions": run_table(setting, lambda run: _mistakes(run, errors)),
        "Cost: mean per question": run_table(setting, _cost),
    }
    return {
        "title": setting.title(),
        "headline": headline(setting),
        "figures": figures,
        "tables": [(title, _html(frame)) for title, frame in tables.items() if not frame.empty],
        "failed": sum(run["n"]["failed"] for run in setting.runs),
        "data": setting.spec["data"],
    }


def run_table(setting: Setting, cells: Callable[[Results], Cells]) -> pd.DataFrame:
    """Return a row per run for which ``cells`` gives any (heading -> text); the largest pools and the best first."""
    import pandas as pd

    rows = []
    for size, form, method in product(reversed(setting.sizes), setting.representations, setting.methods):
        run = setting.find(method, form, size)
        if run and (row := cells(run)):
            head = {"method": setting.view(run).label, "rules": form.upper(), "pool": f"{size:,}"}
            rows.append({**head, **row})
    return pd.DataFrame(rows).fillna(MISSING)


def _scores(run: Results) -> Cells:
    failed = f" ({run['n']['failed']} failed)" if run["n"]["failed"] else ""
    head = {"run": run["run_id"], "n": f"{run['n']['scored']:,}{failed}"}
    return head | {name.replace("_", " "): interval(e) for name in METRICS if (e := macro(run, name))}


def _by_subtask(setting: Setting, run: Results) -> Cells:
    values = estimates(run, setting.lead)
    names = [name for name in setting.spec["subtasks"] if name in values]
    if run["spec"]["pool_size"] != setting.sizes[-1]:
        return {}
    return {name.replace("_", " "): percent(values[name]["value"]) for name in names}


def _by_step(run: Results) -> Cells:
    steps = run["details"]["by_step"].get(MAIN_METRIC, {})
    return {f"step {name}": percent(e["value"]) for name, e in steps.items()}


def _attention(run: Results) -> Cells:
    """Return the mean weight of each step's gold rules at each retrieval, by number of steps; all rules weigh 1."""
    maps = run["measures"].get("rule_attention", {})
    return {
        f"{steps} steps, retrieval {retrieval}": " ".join(f"{weight:.2f}" for weight in row)
        for steps, measured in maps.items()
        for retrieval, (row, n) in enumerate(zip(measured["weights"], measured["n"], strict=True), 1)
        if n
    }


def _mistakes(run: Results, errors: Mapping[str, Mapping[str, int]]) -> Cells:
    outcomes = {name: n for name, n in run["outcomes"].items() if name != "ok"}
    counts = {**errors.get(run["run_id"], {}), **outcomes}
    return {name.replace("_", " "): f"{n:,}" for name, n in counts.items()}


def _cost(run: Results) -> Cells:
    seconds, scored = run["timing"]["seconds"], run["n"]["scored"]
    row = {name.replace("_", " "): f"{usage['mean']:,.4g}" for name, usage in run["usage"].items()}
    return row | ({"seconds": f"{seconds / scored:,.3g}"} if seconds and scored else {})


def beside_paper(table: PaperTable) -> pd.DataFrame:
    """Return one of the paper's tables: ours, and the paper's number behind it."""
    import pandas as pd

    def shown(value: float | None) -> str:
        return MISSING if value is None else percent(value)

    rows = []
    for row in table.rows:
        cells = [f"{shown(ours)} [{shown(paper)}]" for paper, ours in row.cells]
        rows.append([f"{row.pool_size:,}", row.method, row.ours, *cells])
    return pd.DataFrame(rows, columns=["pool", "in the paper", "ours", *table.columns])


def _html(frame: pd.DataFrame) -> Markup:
    """Return a frame as an HTML table; every text of it is escaped."""
    import pandas as pd
    from markupsafe import Markup

    with pd.option_context("display.max_colwidth", None):
        return Markup(frame.to_html(index=False, border=0, escape=True))


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
