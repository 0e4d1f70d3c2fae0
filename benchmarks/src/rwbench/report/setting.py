"""Which runs stand beside each other: results grouped by setting, and their methods.

Runs are grouped by setting (world, split, questions asked): numbers of different settings never share a
figure or a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ..score.results import Estimate, Results
from ..spec import canonical_json
from .palette import CEILINGS, FLOORS

MAIN_METRIC = "recall@1"
ANSWERS = "exact_match"
SETTING_FIELDS = (
    "scale",
    "world_seed",
    "data",
    "split",
    "limit",
    "limit_by",
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
        """The metric that the setting is about: the one that most rows have, exact match if both as many.

        Floors and ceilings count only where there is nothing else: the solver answers in a table of retrieval too.
        """
        frames = (*CEILINGS, *FLOORS)
        rows = [run for run in self.runs if run["method"]["key"] not in frames] or self.runs
        answering, searching = (sum(1 for run in rows if macro(run, name)) for name in (ANSWERS, MAIN_METRIC))
        return ANSWERS if answering >= searching else MAIN_METRIC

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
            (run for run in self.runs if (self.method_of(run), *cell(run)[1:]) == (method, *wanted)), None
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
            (canonical_json([run["method"]["key"], run["method"]["label"]]), *cell(run)[1:])
            for run in self.runs
        )
        return {shown for (shown, *_), count in cells.items() if count > 1}

    def admits(self, run: Results) -> bool:
        """Say whether a run can stand beside these: its cell is free and its pools are made the same way."""
        for other in self.runs:
            same_size = other["spec"]["pool_size"] == run["spec"]["pool_size"]
            if cell(other) == cell(run) or (same_size and _design(other) != _design(run)):
                return False
        return True

    def title(self) -> str:
        """Return what was asked, in words."""
        spec = self.spec
        which = "{} per sub-task, folds in turn" if spec.get("limit_by") else "first {} per sub-task"
        limited = ", " + which.format(spec["limit"]) if spec.get("limit") else ""
        return (
            f"{self.num_questions:,} questions ({len(spec['subtasks'])} sub-tasks, split {spec['split']}"
            f"{limited}), scale {spec['scale']}, world seed {spec['world_seed']}"
        )


def settings(results: Sequence[Results]) -> list[Setting]:
    """Group results by setting, largest group first; of groups as large, held-out rules after the others."""
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
    return sorted(
        (setting for found in groups.values() for setting in found),
        key=lambda setting: (-len(setting.runs), setting.spec["split"] == "heldout"),
    )


def identity(run: Results) -> str:
    """Return what makes two runs runs of the same method: name and all hyper-parameters."""
    return canonical_json(run["spec"]["method"])


def macro(run: Results, metric: str) -> Estimate | None:
    """Return the macro estimate of a metric, or None if the run does not have it."""
    found = run["metrics"].get(metric)
    return found["macro"] if found else None


def details(run: Results, kind: Literal["by_step", "by_rule_type"]) -> dict[str, Estimate]:
    """Return Recall@1 by step or by rule type; empty where it was not computed."""
    found: dict[str, dict[str, Estimate]] = run.get("details", {}).get(kind, {})
    return found.get(MAIN_METRIC, {})


def cell(run: Results) -> tuple[str, str, int]:
    """Return method (by all hyper-parameters), representation and pool size."""
    return identity(run), run["spec"]["representation"], run["spec"]["pool_size"]


def _design(run: Results) -> tuple[str, int | None]:
    return run["spec"]["pool_scope"], run["spec"].get("pool_within")
