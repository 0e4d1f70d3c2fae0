r"""The results of a setting as one table (a pandas frame in the report's order), and its renderings.

CSV holds every estimate. Markdown, terminal and LaTeX hold the lead metric; LaTeX in the columns of the paper's tables:
table 2 (exact match) where methods answer, table 4 (recall) where they only search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..markdown import markdown_table as table_of
from ..score.results import Estimate, Results
from ..score.scoring import RECALLS
from ..score.summarise import DISPLAYED
from .setting import ANSWERS, Setting, settings
from .style import FLOORS

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

CAPTIONS = {ANSWERS: "Exact match in %", "recall@1": "Recall@1 in % (K = number of gold rules)"}
"""What a table's numbers are, by lead metric."""
STRICT = "strict_match"
OURS = "dynarule-plus"
"""Key of the method that a headline names beside the best."""
TIMES_CAPTION = (
    "Seconds of answering, runs of a method together, without loading models and encoding rules; an answer that an "
    "earlier run of the process gave counts in its stage, not in all"
)
FORM_NAMES = {"FOL": "First-order logic", "NL": "Natural language"}
COLUMN_NAMES = {
    "single_rule": "Single",
    "parallel_2_4": "PM (2--4)",
    "parallel_5_8": "PM (5--8)",
    "multi_hop_2": "MH-2",
    "multi_hop_3": "MH-3",
    "multi_hop_4": "MH-4",
}
CSV_COLUMNS = "run_id method rules pool_size metric subtask value ci_low ci_high n".split()
LATEX_SIGNS = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
    }
)


def percent(value: float) -> str:
    """Return a share as a percentage with one decimal; 100 and 0 only where they are exact."""
    shown = f"{100 * value:.1f}"
    if shown == "100.0":
        return "100" if value == 1 else "99.9"
    if shown == "0.0":
        return "0" if value == 0 else "<0.1"
    return shown


def estimates(run: Results, metric: str) -> dict[str, Estimate]:
    """Return the estimates of a run's metric by part: ``macro``, sub-tasks and groups; empty if it has none."""
    found = run["metrics"].get(metric)
    return {"macro": found["macro"]} | found["by_subtask"] | found["by_group"] if found else {}


def csv_text(setting: Setting) -> str:
    """Return every estimate of the setting, sub-tasks included, as CSV."""
    import pandas as pd

    rows = [
        estimate
        | {"run_id": run["run_id"], "method": setting.view(run).label, "metric": metric, "subtask": part}
        | {"rules": run["spec"]["representation"], "pool_size": run["spec"]["pool_size"]}
        for run in setting.runs
        for metric in run["metrics"]
        for part, estimate in estimates(run, metric).items()
    ]
    frame = pd.DataFrame(rows, columns=CSV_COLUMNS)
    # No spreadsheet reads a label as a formula.
    frame["method"] = frame["method"].str.replace(r"^(?=[=+@-])", "'", regex=True)
    return str(frame.to_csv(index=False, lineterminator="\n"))


def score_frame(setting: Setting, columns: dict[str, tuple[str, str]] | None = None) -> pd.DataFrame:
    """Return one row per pool size, representation, method and column, in the report's order.

    Parameters
    ----------
    setting : Setting
    columns : dict, optional
        Heading -> (metric, part as in `estimates`); by default the lead metric's macro average.

    Returns
    -------
    DataFrame
        ``size``, ``form`` (FOL or NL), ``method`` and ``column`` (ordered categories), ``value``, ``ci_low`` and
        ``ci_high`` (shares; NaN where nothing was measured), ``failed`` and ``reference`` (a ceiling or a floor).
    """
    import pandas as pd

    columns = columns or {CAPTIONS[setting.lead]: (setting.lead, "macro")}
    views = setting.methods
    rows = []
    for size in setting.sizes:
        for form in setting.representations:
            for method, view in views.items():
                run = setting.find(method, form, size)
                for heading, (metric, part) in columns.items():
                    found = estimates(run, metric).get(part) if run else None
                    numbers = [found[name] if found else None for name in ("value", "ci_low", "ci_high")]
                    failed = bool(run and run["n"]["failed"])
                    rows.append(
                        [size, form.upper(), view.label, heading, *numbers, failed, view.is_reference]
                    )
    names = ["size", "form", "method", "column", "value", "ci_low", "ci_high", "failed", "reference"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[4:7], float))
    orders = {"method": [view.label for view in views.values()], "column": list(columns)}
    for name, order in orders.items():
        frame[name] = pd.Categorical(frame[name], order, ordered=True)
    return frame


def markdown(frame: pd.DataFrame) -> str:
    """Return a frame of texts as a Markdown table, its index the first column, numbers to the right."""
    rows = [[str(index), *row] for index, row in zip(frame.index, frame.to_numpy(), strict=True)]
    return table_of(["method", *map(str, frame.columns)], rows)


def markdown_table(setting: Setting, held_out: Setting | None = None) -> str:
    """Return the lead metric of a setting in Markdown: percentages with their 95 % intervals, and strict match.

    Parameters
    ----------
    setting : Setting
    held_out : Setting, optional
        The methods asked about rules that no training saw (`Setting.held_out`): its pools are the last columns, and a
        method that is there alone has the last row.
    """
    lead = CAPTIONS[setting.lead].partition(" (")[0]
    columns, caption = {lead: (setting.lead, "macro")}, f"{lead} (95 % interval)"
    if any(STRICT in run["metrics"] for run in setting.runs) and setting.lead == ANSWERS:
        columns[STRICT] = (STRICT, "macro")
        caption += (
            ", where a list has its share of right answers, as in the paper; then strictly, all or nothing"
        )
    title, wide = setting.title(), _wide(setting, columns, "rules")
    labels = {method: view.label for method, view in setting.methods.items()}
    if held_out is not None:
        title += f"; held-out rules: {held_out.title()}"
        wide = wide.join(_wide(held_out, columns, "held-out rules"), how="outer")
        labels |= {method: view.label for method, view in held_out.methods.items() if method not in labels}
        wide = wide.reindex([each for each in labels if each in wide.index]).fillna("-")
    runs = [*setting.runs, *(held_out.runs if held_out else ())]
    return f"{caption}{failure_note(runs)}; {title}.\n\n{markdown(wide.rename(labels))}"


def _wide(setting: Setting, columns: dict[str, tuple[str, str]], rules: str) -> pd.DataFrame:
    """Return a text per method (see `Setting.method_of`), pool size and representation, of one metric or two."""

    def text(cell: pd.DataFrame) -> str:
        rows: list[Any] = [*cell.sort_values("column").itertuples()]
        first, *strict = rows
        if first.value != first.value:  # NaN
            return "-"
        shown = f"{percent(first.value)} ({percent(first.ci_low)}-{percent(first.ci_high)})"
        return ", ".join([shown, *(percent(row.value) for row in strict)]) + failure_mark(first.failed)

    frame = score_frame(setting, columns)
    cells = frame.groupby(["method", "size", "form"], observed=True)[[*frame.columns]].apply(text)
    wide: Any = cells.unstack(["size", "form"])
    wide.columns = [f"{size:,} {rules}, {form}" for size, form in wide.columns]
    methods = {view.label: method for method, view in setting.methods.items()}
    return wide.set_axis([methods[label] for label in wide.index])


def times_frame(setting: Setting) -> pd.DataFrame:
    """Return seconds of a setting's runs: a row per method, the longest first; a column per stage, and ``in all``.

    A row's stages need not sum to its whole: some time is in no stage, and what the model in a folder had answered
    before (`rwbench.backends.local`) comes with the seconds that it took then. NaN where a method has no such stage.
    """
    import pandas as pd

    rows = {}
    for method, view in setting.methods.items():
        timings = [run["timing"] for run in setting.runs if setting.method_of(run) == method]
        stages = pd.DataFrame([timing.get("stages", {}) for timing in timings]).sum()
        rows[view.label] = {**stages, "in all": sum(timing["seconds"] or 0.0 for timing in timings)}
    frame = pd.DataFrame.from_dict(rows, orient="index")
    names = sorted(set(frame.columns) - {"in all"})
    return frame[[*names, "in all"]].sort_values("in all", ascending=False, kind="stable")


def markdown_times(setting: Setting) -> str:
    """Return what the time of a setting's runs went to in Markdown."""
    texts = times_frame(setting).map(lambda seconds: f"{seconds:,.1f}" if seconds == seconds else "-")
    return f"{TIMES_CAPTION}; {setting.title()}.\n\n{markdown(texts)}"


def latex_table(setting: Setting) -> str:
    """Return one booktabs ``table*`` with a block per pool size, a row per method, the best of each column in bold.

    Ceilings and floors are never bold. A dash stands for what was not measured. Needs the package booktabs.
    """
    frame = score_frame(setting, _latex_columns(setting))
    best = (
        frame[~frame.reference].groupby(["size", "form", "column"], observed=True)["value"].transform("max")
    )
    is_best = frame["value"] == best.reindex(frame.index)
    shown = frame["value"].map(lambda value: percent(value).replace("<", "$<$"), na_action="ignore")
    shown = shown.where(~is_best, r"\textbf{" + shown + "}") + frame["failed"].map(failure_mark)
    frame["text"] = shown.fillna("--")
    frame["method"] = frame["method"].cat.rename_categories(lambda label: label.translate(LATEX_SIGNS))
    frame["form"] = frame["form"].map(FORM_NAMES)
    wide: Any = frame.pivot(index=["size", "method"], columns=["form", "column"], values="text")
    wide = wide[(wide != "--").any(axis=1)].rename_axis(index=[None, None], columns=[None, "Method"])
    what = "Exact match" if setting.lead == ANSWERS else "Recall"
    text = wide.style.format_index("{:,} rules", level=0).to_latex(
        environment="table*",
        position="t",
        position_float="centering",
        hrules=True,
        clines="skip-last;data",
        multirow_align="naive",
        multicol_align="c",
        column_format="ll" + "r" * wide.shape[1],
        caption=rf"{what} in \%{failure_note(setting.runs)}. {setting.title().translate(LATEX_SIGNS)}.",
    )
    text = re.sub(r"\\cline\{.*\}\n(\\bottomrule)", r"\1", text).replace(r"\cline", r"\cmidrule")
    return text.replace("\\centering", "\\centering\n\\small").strip()


def _latex_columns(setting: Setting) -> dict[str, tuple[str, str]]:
    if setting.lead != ANSWERS:
        return {name.capitalize(): (name, "macro") for name in reversed(RECALLS)}
    present = {part for run in setting.runs for part in estimates(run, ANSWERS)}
    columns = {COLUMN_NAMES[name]: (ANSWERS, name) for name in DISPLAYED if name in present}
    return columns | {"Avg.": (ANSWERS, "macro")}


def print_report(results: Sequence[Results], console: Console) -> None:
    """Print one table per setting, with the headline under it."""
    for setting in settings(results):
        console.print(_terminal_table(setting))
        console.print(" ".join(headline(setting)), style="bold", highlight=False, markup=False)


def _terminal_table(setting: Setting) -> Any:
    """Return a row per method and representation, the lead metric by pool size."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(setting.title()),
        caption=Text(
            f"{CAPTIONS[setting.lead]} by rules in the pool, ± half of the 95 % interval{failure_note(setting.runs)}"
        ),
        title_justify="left",
        caption_justify="left",
    )
    columns = {"": (setting.lead, "macro")}
    if setting.lead != ANSWERS and any(estimates(run, ANSWERS) for run in setting.runs):
        columns["Exact match, "] = (ANSWERS, "macro")
    frame = score_frame(setting, columns)
    frame = frame[(frame["column"] == "") | (frame["size"] == setting.sizes[-1])]
    frame["text"] = [_half_width(row) for row in frame.itertuples()]
    wide: Any = frame.pivot(index=["method", "form"], columns=["column", "size"], values="text")
    table.add_column("Method")
    table.add_column("Rules")
    for name, size in wide.columns:
        table.add_column(f"{name}{size:,}", justify="right")
    for (label, form), texts in zip(wide.index, wide.to_numpy(), strict=True):
        first, last = (form == setting.representations[place].upper() for place in (0, -1))
        table.add_row(Text(label if first else ""), form, *texts, end_section=last)
    return table


def _half_width(row: Any) -> str:
    if row.value != row.value:
        return "-"
    half = (row.ci_high - row.ci_low) / 2
    return f"{percent(row.value)} ±{100 * half:.1f}{failure_mark(row.failed)}"


def failure_mark(failed: bool | int) -> str:
    """Return what stands behind the number of a run some of whose questions failed, and are not in it."""
    return "*" if failed else ""


def failure_note(runs: Iterable[Results]) -> str:
    """Return what `failure_mark` means, where a run has it: the end of a caption."""
    return "; * without questions that failed" if any(run["n"]["failed"] for run in runs) else ""


def headline(setting: Setting) -> list[str]:
    """Return the best method and DynaRule+ (else the last) on the largest pools, in two or three sentences."""
    frame = score_frame(setting)
    frame = frame[(frame["size"] == setting.sizes[-1]) & frame["value"].notna()]
    values: dict[Any, Any] = dict(iter(frame.groupby("method", observed=True)))
    ranked = [view for view in setting.methods.values() if view.label in values]
    references = [view for view in ranked if view.is_reference]
    references.sort(key=lambda view: view.key.partition("#")[0] in FLOORS)
    contenders = [view for view in ranked if not view.is_reference]
    sentences = []
    if contenders:
        best = contenders[0].label
        # several runs of one method are told apart by what their labels add: the plain one speaks for it
        plus = [view.label for view in contenders if view.key.partition("#")[0] == OURS]
        ours = min(plus, key=lambda label: label.count(","), default=contenders[-1].label)
        verb, what = (
            ("answers", "sub-questions rightly")
            if setting.lead == ANSWERS
            else ("ranks", "gold rules on top")
        )
        size = f"{setting.sizes[-1]:,}"
        sentences.append(f"With {size} rules, {best} {verb} {_shares(values[best])} of the {what}.")
        if best != ours:
            sentences.append(f"{ours} gets {_shares(values[ours])}.")
    if references:
        sentences.append(
            "; ".join(f"{view.label} {_shares(values[view.label])}" for view in references) + "."
        )
    return sentences


def _shares(rows: Any) -> str:
    shown = {row.form: percent(row.value) for row in rows.itertuples()}
    if len(set(shown.values())) == 1:
        return f"{next(iter(shown.values()))} %"
    return " and ".join(f"{value} % ({form})" for form, value in shown.items())
