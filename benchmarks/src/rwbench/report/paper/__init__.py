"""The paper's own numbers, and which of ours stand beside them."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from statistics import fmean
from typing import Any, NamedTuple

from ...score.results import Results
from ...score.stats import fold_interval


class PaperRow(NamedTuple):
    """A row of one of the paper's tables: pool size, the paper's name of the method, our label.

    Per column it has the paper's number and ours, as shares; None where there is none.
    """

    pool_size: int
    method: str
    ours: str
    cells: list[tuple[float | None, float | None]]


class PaperTable(NamedTuple):
    """One of the paper's tables beside our runs.

    ``name`` is the last part of the recipe's name; ``model`` is the paper's (None: the rows name it); ``questions``
    are those of each of our runs.
    """

    name: str
    title: str
    model: str | None
    questions: int
    columns: list[str]
    rows: list[PaperRow]


@lru_cache(maxsize=1)
def numbers() -> dict[str, Any]:
    """Return the data file: ``tables`` by name, ``methods`` (paper's name -> our keys), ``figures`` (in words)."""
    return json.loads(files(__package__).joinpath("numbers.json").read_text(encoding="utf-8"))


def tables_beside_paper(results: Sequence[Results], recipe: str) -> list[PaperTable]:
    """Return the paper's tables that a recipe makes, for the runs on each set of questions, the largest first.

    With more pool sizes ``paper/table2`` makes tables 8, 9 and 11, too. Runs on few questions and on many are tables of
    their own, since they cannot be compared.
    """
    groups: dict[tuple[Any, ...], list[Results]] = {}
    for run in results:
        questions = tuple(run["spec"].get(name) for name in ("split", "scale", "limit", "limit_by"))
        groups.setdefault(questions, []).append(run)
    tables = numbers()["tables"].items()
    names = [name for name, table in tables if recipe == f"paper/{table.get('recipe', name)}"]
    found = (table_beside_paper(runs, name) for runs in groups.values() for name in names)
    return sorted(filter(None, found), key=lambda table: -table.questions)


def table_beside_paper(results: Sequence[Results], name: str) -> PaperTable | None:
    """Return one table of the paper, such as ``"table2"``, with our numbers beside it.

    ``results`` are runs on the same questions. None if none of its rows has a number of ours.
    """
    table = numbers()["tables"][name]
    rows = []
    for row in table["rows"]:
        form = {"representation": row["representation"]} if "representation" in row else {}
        for label, runs in _runs(results, row["method"], row["pool_size"]).items():
            if table.get("kind") == "spread":
                ours = _spread(runs, table["metric"])
            else:
                ours = [_ours(runs, table["metric"], {**column, **form}) for column in table["columns"]]
            if table["has_average"]:
                ours.append(None if None in ours else fmean(value for value in ours if value is not None))
            if any(value is not None for value in ours):
                method = f"{row['method']} ({form['representation'].upper()})" if form else row["method"]
                cells = list(zip(row["values"], ours, strict=True))
                rows.append(PaperRow(row["pool_size"], method, label, cells))
    if not rows:
        return None
    columns = [_title(column) for column in table["columns"]] + ["average"] * table["has_average"]
    questions = max(run["n"]["scheduled"] for run in results)
    return PaperTable(name, table["title"], table["model"], questions, columns, rows)


def quotes(recipe: str) -> list[str]:
    """Return what the paper's text says of a figure that has no table, for a recipe of its name."""
    return [
        f"{quote['says']}: {'; '.join(map(' '.join, quote['values'].items()))}."
        for quote in numbers()["figures"]
        if recipe in [f"paper/{name}" for name in quote["recipes"]]
    ]


def _runs(results: Sequence[Results], method: str, size: int) -> dict[str, list[Results]]:
    """Return label -> runs, for the methods of ours that the paper's name stands for.

    Rows named after a model are prompting rows: they are ours where the label names the same model.
    """
    keys = numbers()["methods"].get(method)
    runs: dict[str, list[Results]] = {}
    for run in results:
        key, label = run["method"]["key"], run["method"]["label"]
        same = key in keys if keys is not None else key == "prompting" and method in label
        if same and run["spec"]["pool_size"] == size:
            runs.setdefault(label, []).append(run)
    return runs


def _ours(runs: Sequence[Results], metric: str, column: Mapping[str, str]) -> float | None:
    name = column["column"] if metric == "recall" else metric
    run = next((run for run in runs if run["spec"]["representation"] == column.get("representation")), None)
    if run is None:
        return None
    # Step by step, as the paper scores methods that search more than once.
    values = run["metrics"].get(f"step_{name}") or run["metrics"].get(name)
    if values is None:
        return None
    if metric == "recall":
        return values["macro"]["value"]
    estimate = (values["by_subtask"] | values["by_group"]).get(column["column"])
    return estimate["value"] if estimate else None


def _spread(runs: Sequence[Results], metric: str) -> list[float | None]:
    """Return the paper's standard deviation and t half width over folds, FOL and NL together."""
    folds: list[list[float]] = []
    for form in ("fol", "nl"):
        metrics = next((run["metrics"] for run in runs if run["spec"]["representation"] == form), {})
        if metric == "recall":
            names = [name for name in metrics if name.startswith("recall@")]
            measured = [(metrics.get(f"step_{name}") or metrics[name]).get("folds") for name in names]
            values = [fold["values"] for fold in measured if fold]
        else:
            measured = [metrics[metric].get("folds")] if metric in metrics else []
            values = [shown for fold in measured if fold and (shown := fold.get("displayed"))]
        if not values:
            return [None, None]
        folds += values
    overall = [fmean(column) for column in zip(*folds, strict=True)]
    return [*fold_interval(overall)]


def _title(column: Mapping[str, str]) -> str:
    words = {"std": "standard deviation", "t_half": "± t interval"}.get(column["column"], column["column"])
    words = re.sub(r"(\d)_(\d)", r"\1 to \2", words).replace("_", " ")
    return f"{words}, {column['representation'].upper()}" if "representation" in column else words
