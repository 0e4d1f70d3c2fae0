"""What a report says of a setting: the headline sentence, table rows and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

from ..score.scoring import ANSWER_METRICS, RECALLS
from .palette import FLOORS
from .setting import ANSWERS, Setting, cell, details, macro

TABLE_METRICS = (*ANSWER_METRICS, *RECALLS, f"expected_{RECALLS[0]}", f"step_{RECALLS[0]}")


def percent(value: float) -> str:
    """Return a share as a percentage with one decimal; 100 and 0 only where they are exact."""
    shown = f"{100 * value:.1f}"
    if shown == "100.0":
        return "100" if value == 1 else "99.9"
    if shown == "0.0":
        return "0" if value == 0 else "<0.1"
    return shown


def headline(setting: Setting) -> list[str]:
    """Return the result in two or three sentences."""
    size = setting.sizes[-1]
    runs = [run for run in setting.runs if run["spec"]["pool_size"] == size and macro(run, setting.lead)]
    rows: dict[str, dict[str, float]] = {}
    for run in runs:
        value = run["metrics"][setting.lead]["macro"]["value"]
        rows.setdefault(setting.method_of(run), {})[run["spec"]["representation"]] = value
    views = setting.methods()
    ranked = [method for method in views if method in rows]
    frames = [method for method in ranked if setting.is_frame(method)]
    frames.sort(key=lambda method: views[method].key.partition("#")[0] in FLOORS)
    contenders = [method for method in ranked if method not in frames]
    sentences = []
    if contenders:
        best = contenders[0]
        done = (
            f"answers {_shares(rows[best])} of the sub-questions rightly"
            if setting.lead == ANSWERS
            else f"ranks {_shares(rows[best])} of the gold rules on top"
        )
        sentences.append(f"With {size:,} rules, {views[best].label} {done}.")
    if len(contenders) > 1:
        last = contenders[-1]
        sentences.append(f"{views[last].label} gets {_shares(rows[last])}.")
    if frames:
        sentences.append(
            "; ".join(f"{views[method].label} {_shares(rows[method])}" for method in frames) + "."
        )
    return sentences


def _shares(values: dict[str, float]) -> str:
    shown = {name: percent(value) for name, value in sorted(values.items())}
    if len(set(shown.values())) == 1:
        return f"{next(iter(shown.values()))} %"
    return " and ".join(f"{value} % ({name.upper()})" for name, value in shown.items())


def table_rows(setting: Setting) -> list[dict[str, Any]]:
    """Return one dict per run: what the page's table and the CSV show."""
    views = setting.methods()
    order = {method: place for place, method in enumerate(views)}
    runs = sorted(
        setting.runs,
        key=lambda run: (
            run["spec"]["pool_size"] * -1,
            run["spec"]["representation"],
            order[setting.method_of(run)],
        ),
    )
    return [
        {
            "key": views[setting.method_of(run)].key,
            "method": views[setting.method_of(run)].label,
            "rules": run["spec"]["representation"].upper(),
            "pool": run["spec"]["pool_size"],
            "metrics": {name: macro(run, name) for name in TABLE_METRICS},
            "by_step": details(run, "by_step"),
            "by_rule_type": details(run, "by_rule_type"),
            "outcomes": run.get("outcomes", {}),
            "usage": run.get("usage", {}),
            "scored": run["n"]["scored"],
            "failed": run["n"]["failed"],
            "run_id": run["run_id"],
        }
        for run in runs
    ]


def table_metrics(setting: Setting) -> list[str]:
    """Return the table's metrics that some run of the setting has."""
    return [name for name in TABLE_METRICS if any(macro(run, name) for run in setting.runs)]


class Times(NamedTuple):
    """Seconds of a setting's runs: names of stages, and rows of (method, seconds by stage, seconds in all)."""

    stages: list[str]
    rows: list[tuple[str, dict[str, float], float]]


TIMES_CAPTION = (
    "Seconds of answering, runs of a method together, without loading models and encoding rules; an answer that an "
    "earlier run of the process gave counts in its stage, not in all"
)


def times(setting: Setting) -> Times:
    """Return what the time went to by method, the longest first.

    A row's stages need not sum to its whole: some time is in no stage, and what the model in a folder had answered
    before (`rwbench.backends.local`) comes with the seconds that it took then.
    """
    rows: list[tuple[str, dict[str, float], float]] = []
    for method, view in setting.methods().items():
        timings = [run["timing"] for run in setting.runs if setting.method_of(run) == method]
        stages: dict[str, float] = {}
        for timing in timings:
            for stage, seconds in timing.get("stages", {}).items():
                stages[stage] = stages.get(stage, 0.0) + seconds
        rows.append((view.label, stages, sum(timing["seconds"] or 0.0 for timing in timings)))
    rows.sort(key=lambda row: -row[2])
    return Times(sorted({stage for _, stages, _ in rows for stage in stages}), rows)


def csv_text(setting: Setting) -> str:
    """Return every estimate of the setting, sub-tasks included, as CSV."""
    out = io.StringIO()
    views = setting.methods()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["run_id", "method", "rules", "pool_size", "metric", "subtask", "value", "ci_low", "ci_high", "n"]
    )
    for run in setting.runs:
        head = [run["run_id"], _safe_cell(views[setting.method_of(run)].label), *cell(run)[1:]]
        for name, metric in run["metrics"].items():
            groups = metric.get("by_group", {})
            for subtask, e in [("macro", metric["macro"]), *metric["by_subtask"].items(), *groups.items()]:
                writer.writerow([*head, name, subtask, e["value"], e["ci_low"], e["ci_high"], e["n"]])
    return out.getvalue()


def _safe_cell(text: str) -> str:
    """Keep spreadsheets from reading a label as a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text
