"""The paper's own numbers, and which of ours stand beside them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
from ruleworld_data.spec import check_name

from ...score.results import Results
from ...score.stats import fold_interval
from .. import rows
from ..setting import Setting, settings
from ..tables import MISSING, estimates, percent


class Beside(NamedTuple):
    """A table or figure of the paper as our runs have it, each cell a text."""

    caption: str
    frame: pd.DataFrame


FIGURES: dict[str, tuple[str, tuple[str, ...], Callable[..., rows.Cells], int]] = {
    "figure3": ("Entropy of attention over rules by layer, in nats", ("confidence",), rows.entropy, 100),
    "figure4": ("Recall@1 in % by step of the proof", ("dynarule",), rows.by_step, 10_000),
    "figure5c": ("Gold rules or a whole pool in the prompt", ("gold-only", "prompting"), rows.answers, 1_000),
    "figure10": ("Mean weight of the gold rules of each step", ("dynarule",), rows.attention, 100),
    "cases": ("How answers go wrong: questions", ("prompting", "dynarule"), rows.mistakes, 100),
}
"""Figures without numbers in the paper: what ours shows, of which methods (by key), up to how many rules."""


NUMBERS: dict[str, Any] = json.loads(files(__package__).joinpath("numbers.json").read_text(encoding="utf-8"))
"""The data file: ``tables`` by name, and ``methods`` (paper's name -> our keys)."""


def beside_paper(results: Sequence[Results], name: str, folder: Path | None = None) -> list[Beside]:
    """Return a table or figure of the paper from first trainings, once for each set of questions.

    ``name`` is such as ``"table2"``, of the data file or of `FIGURES`; runs that are none of its rows are left out.
    ``folder`` holds the runs, whose samples ``"cases"`` reads.
    """
    tables = NUMBERS["tables"]
    check_name("table or figure of the paper", name, (*tables, *FIGURES))
    first = [run for run in results if "seed" not in run["spec"]["method"].get("variant", "")]
    if name in tables:
        found = [_table(tables[name], setting) for setting in settings(first)]
    else:
        title, methods, cells, most_rules = FIGURES[name]
        shown = [run for run in first if run["method"]["key"] in methods]
        shown = [run for run in shown if run["spec"]["pool_size"] <= most_rules]
        if name == "cases":
            cells = partial(cells, folder=folder) if folder else rows.outcomes
        found = [
            Beside(f"{title}; {setting.title()}.", rows.run_table(setting, cells))
            for setting in settings(shown)
        ]
    return [one for one in found if not one.frame.empty]


def _table(table: Mapping[str, Any], setting: Setting) -> Beside:
    """Return one of the paper's tables; its average stands first, and rows without a number of ours are left out."""
    lines = []
    for row in table["rows"] if table.get("split", setting.spec["split"]) == setting.spec["split"] else ():
        form = {"representation": row["representation"]} if "representation" in row else {}
        for label, runs in _runs(setting, row["method"], row["pool_size"]).items():
            if table.get("kind") == "spread":
                ours = _spread(runs, table["metric"])
            else:
                ours = [_ours(runs, table["metric"], {**column, **form}) for column in table["columns"]]
            paper = row["values"]
            if table["has_average"]:
                ours, paper = [_mean(ours), *ours], [paper[-1], *paper[:-1]]
            if any(value is not None for value in ours):
                method = f"{row['method']} ({form['representation'].upper()})" if form else row["method"]
                lines.append([f"{row['pool_size']:,}", method, label, *map(_cell, ours, paper)])
    base = f", with {table['model']}" if table["model"] else ""
    columns = ["average"] * table["has_average"] + [_title(column) for column in table["columns"]]
    caption = f"{table['title']}: ours [the paper's{base}], in %; {setting.title()}."
    return Beside(caption, pd.DataFrame(lines, columns=["pool", "in the paper", "ours", *columns]))


def _cell(ours: float | None, paper: float | None) -> str:
    shown = [MISSING if value is None else percent(value) for value in (ours, paper)]
    return MISSING if ours is paper is None else "{} [{}]".format(*shown)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _runs(setting: Setting, method: str, size: int) -> dict[str, list[Results]]:
    """Return label -> runs, for the methods of ours that the paper's name stands for.

    Rows named after a model are prompting rows: they are ours where the label names the same model.
    """
    keys = NUMBERS["methods"].get(method)
    runs: dict[str, list[Results]] = {}
    labels = {id(run): line.label for line in setting.lines for run in line.runs.values()}
    for run in setting.runs:
        key = run["method"]["key"]
        same = key in keys if keys is not None else key == "prompting" and method in run["method"]["label"]
        if same and run["spec"]["pool_size"] == size:
            runs.setdefault(labels[id(run)], []).append(run)
    return runs


def _ours(runs: Sequence[Results], metric: str, column: Mapping[str, str]) -> float | None:
    if "mean_of" in column:  # a number of a figure, over what its table has in columns
        table, name = NUMBERS["tables"][column["mean_of"]], column["column"]
        columns = [other for other in table["columns"] if name in (table["metric"], other["column"])]
        return _mean([_ours(runs, table["metric"], other) for other in columns])
    name = column["column"] if metric == "recall" else metric
    run = next((run for run in runs if run["spec"]["representation"] == column.get("representation")), None)
    if run is None:
        return None
    # step by step, as the paper scores methods that search more than once
    parts = estimates(run, f"step_{name}") or estimates(run, name)
    estimate = parts.get("macro" if metric == "recall" else column["column"])
    return estimate["value"] if estimate else None


def _spread(runs: Sequence[Results], metric: str) -> list[float | None]:
    """Return the paper's standard deviation and t half width over folds, FOL and NL together."""
    names, part = [metric], "displayed"
    if metric == "recall":
        names, part = [name for name in runs[0]["metrics"] if name.startswith("recall@")], "values"
    measured: list[Any] = [
        run["metrics"].get(f"step_{name}") or run["metrics"].get(name) for run in runs for name in names
    ]
    folds = [values for one in measured if one and (values := (one.get("folds") or {}).get(part))]
    if len(runs) < 2 or len(folds) < len(measured):
        return [None, None]
    overall = [fmean(column) for column in zip(*folds, strict=True)]
    return [*fold_interval(overall)]


def _title(column: Mapping[str, str]) -> str:
    words = {"std": "standard deviation", "t_half": "± t interval"}.get(column["column"], column["column"])
    words = re.sub(r"(\d)_(\d)", r"\1 to \2", words).replace("_", " ")
    return f"{words}, {column['representation'].upper()}" if "representation" in column else words
