r"""The result as LaTeX tables for a paper: booktabs rules, laid out as the paper's own tables.

A document needs ``\usepackage{booktabs}``. Where methods answer, columns are those of the paper's table 2 (exact
match); where they only search, those of its table 4 (recall).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..score.results import Estimate, Results
from ..score.scoring import RECALLS
from ..score.summarise import DISPLAYED
from .setting import ANSWERS, Setting
from .summary import percent

FORM_NAMES = {"fol": "First-order logic", "nl": "Natural language"}
COLUMN_NAMES = {
    "single_rule": "Single",
    "parallel_2_4": "PM (2--4)",
    "parallel_5_8": "PM (5--8)",
    "multi_hop_2": "MH-2",
    "multi_hop_3": "MH-3",
    "multi_hop_4": "MH-4",
}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


class _Column(NamedTuple):
    """What a column shows: heading, and metric with sub-task or group (None: the macro average)."""

    heading: str
    metric: str
    part: str | None


def latex_table(setting: Setting) -> str:
    """Return one ``table*`` with a block per pool size, a row per method, the best of each column in bold.

    Ceilings and floors are never bold. A dash stands for what was not measured.
    """
    columns = _columns(setting)
    forms = setting.representations
    width = 1 + len(forms) * len(columns)
    views = setting.methods()
    lines = [
        r"\begin{table*}[t]",
        r"  \centering",
        r"  \small",
        rf"  \begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"    \toprule",
    ]
    spans = [rf"\multicolumn{{{len(columns)}}}{{c}}{{{FORM_NAMES[form]}}}" for form in forms]
    lines.append(f"    & {' & '.join(spans)} \\\\")
    lines += [
        rf"    \cmidrule(lr){{{2 + i * len(columns)}-{1 + (i + 1) * len(columns)}}}"
        for i in range(len(forms))
    ]
    lines.append(f"    Method & {' & '.join([column.heading for column in columns] * len(forms))} \\\\")
    for size in setting.sizes:
        rows = [
            (
                method,
                [_value(setting.find(method, form, size), column) for form in forms for column in columns],
            )
            for method in views
        ]
        rows = [(method, values) for method, values in rows if any(value is not None for value in values)]
        competing = [values for method, values in rows if not setting.is_frame(method)]
        best = [
            max((v for v in column if v is not None), default=None) for column in zip(*competing, strict=True)
        ]
        lines.append(r"    \midrule")
        lines.append(rf"    \multicolumn{{{width}}}{{c}}{{\textit{{{size:,} rules}}}} \\")
        lines.append(r"    \midrule")
        for method, values in rows:
            frame = setting.is_frame(method)
            marks = [None] * len(values) if frame or not best else best
            cells = [_cell(value, mark) for value, mark in zip(values, marks, strict=True)]
            lines.append(f"    {escape(views[method].label)} & {' & '.join(cells)} \\\\")
    what = "Exact match" if setting.lead == ANSWERS else "Recall"
    lines += [
        r"    \bottomrule",
        r"  \end{tabular}",
        rf"  \caption{{{what} in \%. {escape(setting.title())}.}}",
        r"\end{table*}",
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return text in which no sign means anything to LaTeX; signs outside ASCII are left to its UTF-8 input."""
    return re.sub("|".join(map(re.escape, _SPECIAL)), lambda match: _SPECIAL[match[0]], text)


def _columns(setting: Setting) -> list[_Column]:
    if setting.lead != ANSWERS:
        return [_Column(name.capitalize(), name, None) for name in reversed(RECALLS)]
    parts = [name for name in DISPLAYED if any(_part(run, ANSWERS, name) for run in setting.runs)]
    return [*(_Column(COLUMN_NAMES[name], ANSWERS, name) for name in parts), _Column("Avg.", ANSWERS, None)]


def _value(run: Results | None, column: _Column) -> float | None:
    if run is None:
        return None
    found = _part(run, column.metric, column.part)
    return found["value"] if found else None


def _part(run: Results, metric: str, part: str | None) -> Estimate | None:
    found = run["metrics"].get(metric)
    if found is None or part is None:
        return found["macro"] if found else None
    return (found["by_subtask"] | found.get("by_group", {})).get(part)


def _cell(value: float | None, best: float | None) -> str:
    if value is None:
        return "--"
    shown = percent(value).replace("<", r"$<$")
    return rf"\textbf{{{shown}}}" if value == best else shown


def latex_tables(settings: Sequence[Setting]) -> str:
    """Return the tables of all settings."""
    return "\n\n".join(latex_table(setting) for setting in settings)
