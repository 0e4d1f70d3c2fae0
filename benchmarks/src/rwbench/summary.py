"""What a report says: results grouped by setting, the headline sentence, table rows and CSV.

Runs are grouped by setting (world, split, questions asked): numbers of different settings never share a
figure or a sentence.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from .palette import CEILINGS, FLOORS
from .results import Results
from .scoring import ANSWER_METRICS, RECALLS
from .spec import canonical_json

TABLE_METRICS = (*ANSWER_METRICS, *RECALLS, f"expected_{RECALLS[0]}", f"step_{RECALLS[0]}")
MAIN_METRIC = "recall@1"
ANSWERS = "exact_match"
SETTING_FIELDS = (
    "scale",
    "world_seed",
    "data",
    "split",
    "limit",
    "subtasks",
    "pool_seed",
    "top_k",
    "scorer_version",
)


class MethodView(NamedTuple):
    """How a method is shown: ``key`` picks the style, ``label`` is what a reader sees."""

    key: str
    label: str


@dataclass(frozen=True)
class Setting:
    """All runs that answer the same questions under the same scoring."""

    runs: tuple[Results, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """Spec of any run, for the fields that all share."""
        return self.runs[0]["spec"]

    @property
    def num_questions(self) -> int:
        """Questions per run."""
        return self.runs[0]["n"]["scheduled"]

    @property
    def sizes(self) -> list[int]:
        """Pool sizes, ascending."""
        return sorted({run["spec"]["pool_size"] for run in self.runs})

    @property
    def representations(self) -> list[str]:
        """Representations present, FOL first."""
        return sorted({run["spec"]["representation"] for run in self.runs})

    @cached_property
    def lead(self) -> str:
        """The metric that the setting is about: exact match if any method but a floor or ceiling answers."""
        frames = (*CEILINGS, *FLOORS)
        answering = [run for run in self.runs if run["method"]["key"] not in frames and macro(run, ANSWERS)]
        searching = any(macro(run, MAIN_METRIC) for run in self.runs)
        return ANSWERS if answering or not searching else MAIN_METRIC

    def methods(self) -> dict[str, MethodView]:
        """Return method -> view, best first: by the lead metric, then by the other, on the largest pools."""
        views: dict[str, MethodView] = {}
        taken: Counter[str] = Counter()
        for run in self.runs:
            if self.method_of(run) not in views:
                key, label = run["method"]["key"], run["method"]["label"]
                taken[key] += 1
                # Two variants of one method get a style each; the labels of most already differ.
                twin = sum(view.label == label for view in views.values())
                views[self.method_of(run)] = MethodView(
                    key if taken[key] == 1 else f"{key}#{taken[key]}",
                    f"{label} #{twin + 1}" if twin else label,
                )
        return dict(sorted(views.items(), key=lambda item: (self._strength(item[0]), item[1].label)))

    def _strength(self, method: str) -> tuple[float, ...]:
        largest = self.sizes[-1]
        own = [
            run for run in self.runs if self.method_of(run) == method and run["spec"]["pool_size"] == largest
        ]
        values = [
            [macro(run, name) for run in own] for name in dict.fromkeys((self.lead, MAIN_METRIC, ANSWERS))
        ]
        known = [[v["value"] for v in column if v is not None] for column in values]
        return tuple(-sum(column) / len(column) if column else 0.0 for column in known)

    def find(self, method: str, representation: str, size: int) -> Results | None:
        """Return the run of a method (see `method_of`) on one cell, or None."""
        wanted = (representation, size)
        return next(
            (run for run in self.runs if (self.method_of(run), *_cell(run)[1:]) == (method, *wanted)), None
        )

    def is_frame(self, method: str) -> bool:
        """Say whether a method is a ceiling or a floor, which frames the others and competes with none."""
        keys = {run["method"]["key"] for run in self.runs if self.method_of(run) == method}
        return bool(keys & {*CEILINGS, *FLOORS})

    def method_of(self, run: Results) -> str:
        """Return what makes two runs one row: their label, unless that hides a difference.

        A method may have other parameters for FOL than for NL, such as the adapter it loads; two runs of one label
        on the same cell differ in a parameter that matters, and are told apart by all of them.
        """
        shown = canonical_json([run["method"]["key"], run["method"]["label"]])
        return identity(run) if shown in self._ambiguous else shown

    @cached_property
    def _ambiguous(self) -> set[str]:
        cells = Counter(
            (canonical_json([run["method"]["key"], run["method"]["label"]]), *_cell(run)[1:])
            for run in self.runs
        )
        return {shown for (shown, *_), count in cells.items() if count > 1}

    def admits(self, run: Results) -> bool:
        """Say whether a run can stand beside these: its cell is free and its pools are made the same way."""
        for other in self.runs:
            same_size = other["spec"]["pool_size"] == run["spec"]["pool_size"]
            if _cell(other) == _cell(run) or (same_size and _design(other) != _design(run)):
                return False
        return True

    def title(self) -> str:
        """Return what was asked, in words."""
        spec = self.spec
        limited = f", first {spec['limit']} per sub-task" if spec.get("limit") else ""
        return (
            f"{self.num_questions:,} questions ({len(spec['subtasks'])} sub-tasks, split {spec['split']}"
            f"{limited}), scale {spec['scale']}, world seed {spec['world_seed']}"
        )


def settings(results: Sequence[Results]) -> list[Setting]:
    """Group results by setting, largest group first."""
    groups: dict[str, list[Setting]] = {}
    for run in results:
        found = groups.setdefault(
            canonical_json({name: run["spec"].get(name) for name in SETTING_FIELDS}), []
        )
        place = next((place for place, setting in enumerate(found) if setting.admits(run)), None)
        if place is None:
            found.append(Setting((run,)))
        else:
            found[place] = Setting((*found[place].runs, run))
    return sorted((setting for found in groups.values() for setting in found), key=lambda s: -len(s.runs))


def identity(run: Results) -> str:
    """Return what makes two runs runs of the same method: name and all hyper-parameters."""
    return canonical_json(run["spec"]["method"])


def macro(run: Results, metric: str) -> dict[str, Any] | None:
    """Return the macro estimate of a metric, or None if the run does not have it."""
    found = run["metrics"].get(metric)
    return found["macro"] if found else None


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
    frames = [method for kind in (CEILINGS, FLOORS) for method in ranked if views[method].key in kind]
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
            "by_step": _details(run, "by_step"),
            "by_rule_type": _details(run, "by_rule_type"),
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


def _details(run: Results, kind: str) -> dict[str, Any]:
    """Return Recall@1 by step or by rule type; empty where it was not computed."""
    found = run.get("details", {}).get(kind, {})
    return found.get(MAIN_METRIC, {})


def csv_text(setting: Setting) -> str:
    """Return every estimate of the setting, sub-tasks included, as CSV."""
    out = io.StringIO()
    views = setting.methods()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["run_id", "method", "rules", "pool_size", "metric", "subtask", "value", "ci_low", "ci_high", "n"]
    )
    for run in setting.runs:
        head = [run["run_id"], _safe_cell(views[setting.method_of(run)].label), *_cell(run)[1:]]
        for name, metric in run["metrics"].items():
            groups = metric.get("by_group", {})
            for subtask, e in [("macro", metric["macro"]), *metric["by_subtask"].items(), *groups.items()]:
                writer.writerow([*head, name, subtask, e["value"], e["ci_low"], e["ci_high"], e["n"]])
    return out.getvalue()


def _safe_cell(text: str) -> str:
    """Keep spreadsheets from reading a label as a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text


def _cell(run: Results) -> tuple[str, str, int]:
    return identity(run), run["spec"]["representation"], run["spec"]["pool_size"]


def _design(run: Results) -> tuple[str, int | None]:
    return run["spec"]["pool_scope"], run["spec"].get("pool_within")
