r"""The results of a setting as one pandas frame in the report's order, and as text, Markdown, LaTeX and sentences.

LaTeX has the columns of the paper's tables: table 2 (exact match) where methods answer, table 4 (recall) where they
only search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..markdown import markdown_table as table_of
from ..score.results import Estimate, Results
from ..score.scoring import RECALLS
from ..score.summarise import DISPLAYED
from .setting import ANSWERS, MAIN_METRIC, Setting, macro
from .style import FLOORS

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

CAPTIONS = {ANSWERS: "Exact match in %", "recall@1": "Recall@1 in % (K = number of gold rules)"}
"""What a table's numbers are, by lead metric."""
STRICT = "strict_match"
FOUND_FIRST = (f"step_{MAIN_METRIC}", MAIN_METRIC)
"""How often the needed rule came first: at each step where a method searches at each, else in its one search."""
MISSING = "-"
OURS = "dynarule-plus"
"""Key of the method that a headline names beside the best."""
FORM_NAMES = {"fol": "First-order logic", "nl": "Natural language"}
COLUMN_NAMES = {
    "single_rule": "Single",
    "parallel_2_4": "PM (2--4)",
    "parallel_5_8": "PM (5--8)",
    "multi_hop_2": "MH-2",
    "multi_hop_3": "MH-3",
    "multi_hop_4": "MH-4",
}
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


def interval(estimate: Estimate | None) -> str:
    """Return an estimate as a cell: percentage and 95 % interval."""
    if estimate is None:
        return MISSING
    return f"{percent(estimate['value'])} ({percent(estimate['ci_low'])}-{percent(estimate['ci_high'])})"


def estimates(run: Results, metric: str) -> dict[str, Estimate]:
    """Return the estimates of a run's metric by part: ``macro``, sub-tasks and groups; empty if it has none."""
    parts = run["metrics"].get(metric)
    return {"macro": parts["macro"]} | parts["by_subtask"] | parts["by_group"] if parts else {}


def markdown(frame: pd.DataFrame) -> str:
    """Return a frame of texts as a Markdown table, its index the first column, numbers to the right."""
    rows = [[str(index), *row] for index, row in zip(frame.index, frame.to_numpy(), strict=True)]
    return table_of(["method", *map(str, frame.columns)], rows)


def markdown_table(setting: Setting, held_out: Setting | None = None) -> str:
    """Return the lead metric of a setting in Markdown: percentages with their 95 % intervals, and strict match.

    Parameters
    ----------
    setting : Setting
        One about rule books has a column for each book in place of pool sizes (`book_table`).
    held_out : Setting, optional
        The methods on rules that no training saw (`Setting.held_out`): its pools are the last columns, and a method
        that is there alone has the last row.
    """
    if setting.on_books:
        return book_table(setting)
    lead = CAPTIONS[setting.lead].partition(" (")[0]
    metrics, caption = [setting.lead], f"{lead} (95 % interval)"
    if any(STRICT in run["metrics"] for run in setting.runs) and setting.lead == ANSWERS:
        metrics.append(STRICT)
        caption += (
            ", where a list has its share of right answers, as in the paper; then strictly, all or nothing"
        )
    title, wide = setting.title(), _wide(setting, metrics, "rules")
    labels = {method: view.label for method, view in setting.methods.items()}
    if held_out is not None:
        title += f"; held-out rules: {held_out.title()}"
        wide = wide.join(_wide(held_out, metrics, "held-out rules"), how="outer")
        labels |= {method: view.label for method, view in held_out.methods.items() if method not in labels}
        wide = wide.reindex([method for method in labels if method in wide.index]).fillna(MISSING)
    runs = [*setting.runs, *(held_out.runs if held_out else ())]
    return f"{caption}{failure_note(runs)}; {title}.\n\n{markdown(wide.rename(labels))}"


def _wide(setting: Setting, metrics: list[str], rules: str) -> pd.DataFrame:
    """Return a text of all metrics per method (see `Setting.method_of`), pool size and representation."""
    import pandas as pd

    def text(run: Results | None) -> str:
        first, *others = (macro(run, name) if run else None for name in metrics)
        if run is None or first is None:
            return MISSING
        shown = [interval(first), *(percent(other["value"]) for other in others if other)]
        return ", ".join(shown) + failure_mark(run["n"]["failed"])

    cells = [(size, form) for size in setting.sizes for form in setting.representations]
    rows = {
        method: [text(setting.find(method, form, size)) for size, form in cells] for method in setting.methods
    }
    heads = [f"{size:,} {rules}, {form.upper()}" for size, form in cells]
    return pd.DataFrame.from_dict(rows, orient="index", columns=heads)


def book_table(setting: Setting) -> str:
    """Return the answers on all books, on each, and the rules found first, in Markdown, with 95 % intervals."""
    import pandas as pd

    parts = {"all": "macro"} | {book.replace("_", " "): book for book in setting.spec["subtasks"]}
    values: dict[str, float] = {}
    rows = {}
    for method, view in setting.methods.items():
        run = setting.find(method, "nl", setting.sizes[-1])
        if run is not None:
            answers = estimates(run, ANSWERS)
            values[view.label] = answers["macro"]["value"] if answers else -1.0  # below all that answer
            first = next((e for name in FOUND_FIRST if (e := macro(run, name))), None)
            cells = [interval(answers.get(part)) for part in parts.values()]
            mark = failure_mark(run["n"]["failed"])
            rows[view.label] = [cells[0] + mark, *cells[1:], interval(first)]
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=[*parts, "rule found first"])
    frame = frame.loc[sorted(frame.index, key=lambda label: -values[label])]
    sizes = " or ".join(map(str, setting.sizes))
    return (
        "Answers right in % (95 % interval), and how often the rule that a step needs was found first of "
        f"{sizes}{failure_note(setting.runs)}; {setting.title()}.\n\n{markdown(frame)}"
    )


def terminal_table(setting: Setting) -> Table:
    """Return the lead metric by pool size, a row per method and representation."""
    from rich.table import Table
    from rich.text import Text

    def text(run: Results | None) -> str:
        estimate = macro(run, setting.lead) if run else None
        if run is None or estimate is None:
            return MISSING
        half = (estimate["ci_high"] - estimate["ci_low"]) / 2
        return f"{percent(estimate['value'])} ±{100 * half:.1f}{failure_mark(run['n']['failed'])}"

    caption = f"{CAPTIONS[setting.lead]} by rules in the pool, ± half of the 95 % interval"
    table = Table(
        title=Text(setting.title()),
        caption=Text(caption + failure_note(setting.runs)),
        title_justify="left",
        caption_justify="left",
    )
    for name in ("Method", "Rules"):
        table.add_column(name)
    for size in setting.sizes:
        table.add_column(f"{size:,}", justify="right")
    for method, view in setting.methods.items():
        for form in setting.representations:
            label = view.label if form == setting.representations[0] else ""
            texts = [text(setting.find(method, form, size)) for size in setting.sizes]
            table.add_row(Text(label), form.upper(), *texts)  # as Text, brackets of a label are no markup
    return table


def latex_table(setting: Setting) -> str:
    """Return one booktabs ``table*`` with a block per pool size, a row per method, the best of each column in bold.

    Ceilings and floors are never bold. A dash stands for what was not measured. Needs the package booktabs.
    """
    import pandas as pd

    blocks = {}
    for size in setting.sizes:
        columns = {}
        for form in setting.representations:
            runs = {method: setting.find(method, form, size) for method in setting.methods}
            for heading, (metric, part) in _latex_columns(setting).items():
                columns[FORM_NAMES[form], heading] = _latex_column(setting, runs, metric, part)
        labels = [view.label.translate(LATEX_SIGNS) for view in setting.methods.values()]
        block = pd.DataFrame(columns, index=labels)
        blocks[f"{size:,} rules"] = block[(block != "--").any(axis=1)]
    wide = pd.concat(blocks)
    wide.columns = wide.columns.set_names("Method", level=1)
    what = "Exact match" if setting.lead == ANSWERS else "Recall"
    table = wide.style.to_latex(
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
    table = re.sub(r"\\cline\{.*\}\n(\\bottomrule)", r"\1", table).replace(r"\cline", r"\cmidrule")
    return table.replace("\\centering", "\\centering\n\\small").strip()


def _latex_column(setting: Setting, runs: dict[str, Results | None], metric: str, part: str) -> list[str]:
    """Return a text per method, the best of those that compete in bold."""
    shares = {
        method: estimate["value"]
        for method, run in runs.items()
        if run and (estimate := estimates(run, metric).get(part))
    }
    competing = {
        method: share for method, share in shares.items() if not setting.methods[method].is_reference
    }
    texts = []
    for method, run in runs.items():
        if run is None or method not in shares:
            texts.append("--")
            continue
        text = percent(shares[method]).replace("<", "$<$")
        is_best = method in competing and shares[method] == max(competing.values())
        texts.append((rf"\textbf{{{text}}}" if is_best else text) + failure_mark(run["n"]["failed"]))
    return texts


def _latex_columns(setting: Setting) -> dict[str, tuple[str, str]]:
    if setting.lead != ANSWERS:
        return {name.capitalize(): (name, "macro") for name in reversed(RECALLS)}
    present = {part for run in setting.runs for part in estimates(run, ANSWERS)}
    columns = {COLUMN_NAMES[name]: (ANSWERS, name) for name in DISPLAYED if name in present}
    return columns | {"Avg.": (ANSWERS, "macro")}


def failure_mark(failed: bool | int) -> str:
    """Return what stands behind the number of a run some of whose questions failed, and are not in it."""
    return "*" if failed else ""


def failure_note(runs: Iterable[Results]) -> str:
    """Return what `failure_mark` means, where a run has it: the end of a caption."""
    return "; * without questions that failed" if any(run["n"]["failed"] for run in runs) else ""


def headline(setting: Setting) -> list[str]:
    """Return the best method and DynaRule+ (else the last) on the largest pools, in two or three sentences."""
    size = setting.sizes[-1]
    shares = {}
    for method, view in setting.methods.items():
        runs = {form.upper(): setting.find(method, form, size) for form in setting.representations}
        values = {
            form: percent(e["value"]) for form, run in runs.items() if run and (e := macro(run, setting.lead))
        }
        if len(set(values.values())) == 1:
            shares[view] = f"{next(iter(values.values()))} %"
        elif values:
            shares[view] = " and ".join(f"{value} % ({form})" for form, value in values.items())
    contenders = [view for view in shares if not view.is_reference]
    references = [view for view in shares if view.is_reference]
    references.sort(key=lambda view: view.key.partition("#")[0] in FLOORS)
    sentences = []
    if contenders:
        best = contenders[0]
        # Several runs of one method are told apart by what their labels add: the plain one speaks for it.
        plus = [view for view in contenders if view.key.partition("#")[0] == OURS]
        ours = min(plus, key=lambda view: view.label.count(","), default=contenders[-1])
        answers = setting.lead == ANSWERS
        verb, what = ("answers", "sub-questions rightly") if answers else ("ranks", "gold rules on top")
        sentences.append(f"With {size:,} rules, {best.label} {verb} {shares[best]} of the {what}.")
        if best != ours:
            sentences.append(f"{ours.label} gets {shares[ours]}.")
    if references:
        sentences.append("; ".join(f"{view.label} {shares[view]}" for view in references) + ".")
    return sentences
