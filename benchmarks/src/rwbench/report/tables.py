"""The results of a setting as one pandas frame in the report's order, and as text, Markdown and sentences."""

from collections.abc import Callable, Iterable, Sequence
from textwrap import fill

import pandas as pd

from ..score.results import Estimate, Results
from .setting import ANSWERS, FLOORS, MAIN_METRIC, Line, Setting, macro

CAPTIONS = {ANSWERS: "Exact match in %", "recall@1": "Recall@1 in % (K = number of gold rules)"}
"""What a table's numbers are, by lead metric."""
DOES = {ANSWERS: "answers {} of the sub-questions rightly", MAIN_METRIC: "ranks {} of the gold rules on top"}
STRICT = "strict_match"
FOUND_FIRST = (f"step_{MAIN_METRIC}", MAIN_METRIC)
"""How often the needed rule came first: at each step where a method searches at each, else in its one search."""
MISSING = "-"
OURS = "dynarule-plus"
"""Key of the method that a headline names beside the best."""


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


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; all but the first column are numbers, and stand at the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("|" + "".join(f" {text} |" if text else " |" for text in line) for line in lines)


def table(setting: Setting, text: Callable[[Results, Estimate], str]) -> pd.DataFrame:
    """Return the lead metric as texts: a row per method, a column per pool size and form; a star: questions failed.

    One about rule books has a column for each book in place of pool sizes, and how often the rule that a step needs was
    found first.
    """
    lead = (setting.lead,)
    columns: dict[str, tuple[int, str, str, tuple[str, ...]]]
    if setting.on_books:
        parts = {"all": "macro"} | {book.replace("_", " "): book for book in setting.spec["subtasks"]}
        columns = {name: (setting.sizes[-1], "nl", part, lead) for name, part in parts.items()}
        columns["rule found first"] = (setting.sizes[-1], "nl", "macro", FOUND_FIRST)
    else:
        columns = {
            f"{size:,} rules, {form.upper()}": (size, form, "macro", lead)
            for size in setting.sizes
            for form in setting.representations
        }

    def cell(line: Line, size: int, form: str, part: str, metrics: Sequence[str]) -> str:
        run = line.runs.get((form, size))
        found = (estimates(run, name).get(part) for name in metrics) if run else ()
        estimate = next(filter(None, found), None)
        return text(run, estimate) + "*" * bool(run["n"]["failed"]) if run and estimate else MISSING

    rows = {line.label: [cell(line, *column) for column in columns.values()] for line in setting.lines}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(columns))


def markdown_table(setting: Setting) -> str:
    """Return `table` in Markdown, with 95 % intervals."""
    lists = setting.lead == ANSWERS and not setting.on_books

    def text(run: Results, estimate: Estimate) -> str:
        strict = macro(run, STRICT) if lists else None
        return interval(estimate) + (f", {percent(strict['value'])}" if strict else "")

    frame = table(setting, text)
    caption = f"{CAPTIONS[setting.lead].partition(' (')[0]} (95 % interval)"
    if setting.on_books:
        caption += ", and how often the rule that a step needs was found first"
    elif lists and any(STRICT in run["metrics"] for run in setting.runs):
        caption += (
            ", where a list has its share of right answers, as in the paper; then strictly, all or nothing"
        )
    head = f"{caption}{failure_note(setting.runs)}; {setting.title()}."
    return f"{fill(head, 120)}\n\n{table_of(['method', *frame.columns], frame.reset_index().to_numpy())}"


def terminal_table(setting: Setting) -> str:
    """Return `table` for a terminal, with half of the 95 % interval."""

    def text(run: Results, estimate: Estimate) -> str:
        half = (estimate["ci_high"] - estimate["ci_low"]) / 2
        return f"{percent(estimate['value'])} ±{100 * half:.1f}"

    frame = table(setting, text).rename(columns=lambda name: name.replace(" rules", ""))
    with pd.option_context("display.max_colwidth", None):
        body = frame.to_string()
    caption = f"{CAPTIONS[setting.lead]}, ± half of the 95 % interval"
    return f"{setting.title()}\n{body}\n{caption}{failure_note(setting.runs)}"


def failure_note(runs: Iterable[Results]) -> str:
    """Return what a star behind a number means, where a run has one: the end of a caption."""
    return "; * without questions that failed" if any(run["n"]["failed"] for run in runs) else ""


def headline(setting: Setting) -> str:
    """Return the best method and DynaRule+ on the largest pools, with floors and ceilings, in a few sentences."""
    size = setting.sizes[-1]
    shares: dict[str, str] = {}
    for line in setting.lines:
        values = {
            form.upper(): percent(estimate["value"])
            for form in setting.representations
            if (run := line.runs.get((form, size))) and (estimate := macro(run, setting.lead))
        }
        if values:
            shares[line.label] = " and ".join(f"{value} % ({form})" for form, value in values.items())
    shown = [line for line in setting.lines if line.label in shares]
    contenders = [line for line in shown if not line.is_reference]
    references = sorted((line for line in shown if line.is_reference), key=lambda line: line.key in FLOORS)
    sentences = []
    if contenders:
        best = contenders[0]
        # Several runs of one method are told apart by what their labels add: the plain one speaks for it.
        plus = [line for line in contenders if line.key == OURS]
        ours = min(plus, key=lambda line: line.label.count(","), default=best)
        does = DOES[setting.lead].format(shares[best.label])
        sentences.append(f"With {size:,} rules, {best.label} {does}.")
        if best != ours:
            sentences.append(f"{ours.label} gets {shares[ours.label]}.")
    if references:
        sentences.append("; ".join(f"{line.label} {shares[line.label]}" for line in references) + ".")
    return " ".join(sentences)
