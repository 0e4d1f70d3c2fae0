"""Runs that may be compared: results grouped by setting (world, split, questions), and the methods of each.

Numbers of different settings never share a figure or a sentence.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ruleworld_data.spec import HEADLINE_SPLITS

from ..score.results import Estimate, Results
from ..spec import BOOKS_DATA, canonical_json

CEILINGS = ("solver", "gold-only")
FLOORS = ("random", "no-rules", "rag-random")
"""Keys of methods that frame the others."""
MAIN_METRIC = "recall@1"
ANSWERS = "exact_match"
OF_A_RUN = ("method", "representation", "pool_size", "pool_scope", "pool_within")
"""Fields of a spec in which the runs of one setting may differ."""


class Line(NamedTuple):
    """A method in a setting: its short name, the label, unique there, that a reader sees, and its runs.

    A method may have other parameters for FOL than for NL, such as the adapter it loads; runs of one label on the same
    cell differ in a parameter that matters, and are lines of their own.
    """

    key: str
    label: str
    runs: dict[tuple[str, int], Results]  # by representation and pool size

    @property
    def is_reference(self) -> bool:
        """Whether it is a ceiling or a floor, which competes with no method."""
        return self.key in (*CEILINGS, *FLOORS)


@dataclass(frozen=True)
class Setting:
    """All runs that answer the same questions under the same scoring."""

    runs: tuple[Results, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """Spec of any run, for the fields that all share."""
        return self.runs[0]["spec"]

    @property
    def on_books(self) -> bool:
        """Whether the questions are about rule books of the real world."""
        return bool(self.spec["data"].startswith(BOOKS_DATA))

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
        """The metric that the setting is about: the one that most rows have, exact match if both as many and on books.

        Floors and ceilings count only where there is nothing else: the solver answers in a table of retrieval too.
        """
        rows = [run for run in self.runs if run["method"]["key"] not in (*CEILINGS, *FLOORS)] or self.runs
        answering, searching = (sum(1 for run in rows if macro(run, name)) for name in (ANSWERS, MAIN_METRIC))
        return ANSWERS if self.on_books or answering >= searching else MAIN_METRIC

    @cached_property
    def model(self) -> str | None:
        """The model that all methods with a model share, which their labels need not name; None if they differ."""
        models = [model for run in self.runs if (model := run["spec"]["method"].get("model"))]
        # A backend is called by its model; a folder, by its name.
        local = {
            str(model["model"]).rstrip("/").split("/")[-1] for model in models if model["name"] == "local"
        }
        names = local | {str(model["model"]) for model in models if model["name"] != "local"}
        return names.pop() if len(names) == 1 else None

    @cached_property
    def lines(self) -> list[Line]:
        """The methods, best first: by the lead metric, then by the other, on the largest pools; floors last."""
        counts = Counter((_named(run), *cell(run)[1:]) for run in self.runs)
        ambiguous = {name for (name, *_), count in counts.items() if count > 1}
        grouped: dict[Any, dict[tuple[str, int], Results]] = defaultdict(dict)
        for run in self.runs:
            method, form, size = cell(run)
            grouped[method if _named(run) in ambiguous else _named(run)][form, size] = run
        labels: Counter[str] = Counter()
        lines = []
        for runs in grouped.values():
            key, label = _named(next(iter(runs.values())))
            label = label if self.model is None else label.replace(f", {self.model}", "", 1)
            labels[label] += 1
            lines.append(Line(key, label if labels[label] == 1 else f"{label} #{labels[label]}", runs))

        def place(line: Line) -> tuple[Any, ...]:
            runs = [line.runs.get((form, self.sizes[-1])) for form in self.representations]
            means = []
            for name in (self.lead, MAIN_METRIC, ANSWERS):
                values = [estimate["value"] for run in runs if run and (estimate := macro(run, name))]
                means.append(sum(values) / len(values) if values else 0.0)
            return line.key in FLOORS, *(-mean for mean in means), line.label

        return sorted(lines, key=place)

    def admits(self, run: Results) -> bool:
        """Say whether a run can stand beside these: its cell is free and its pools are made the same way."""
        for other in self.runs:
            ours, theirs = other["spec"], run["spec"]
            designed = all(ours.get(name) == theirs.get(name) for name in ("pool_scope", "pool_within"))
            if cell(other) == cell(run) or (ours["pool_size"] == theirs["pool_size"] and not designed):
                return False
        return True

    def title(self) -> str:
        """Return what was asked, in words."""
        spec = self.spec
        which = "{} per sub-task, folds in turn" if spec.get("limit_by") else "first {} per sub-task"
        limited = ", " + which.format(spec["limit"]) if spec.get("limit") else ""
        model = f", model {self.model}" if self.model else ""
        count = f"{self.runs[0]['n']['scheduled']:,}"
        if self.on_books:
            books = ", ".join(name.replace("_", " ") for name in spec["subtasks"])
            return f"{count} questions{limited} on {len(spec['subtasks'])} rule books ({books}){model}"
        dials = f", dials {spec['dials']}" if spec.get("dials") else ""
        return (
            f"{count} questions ({len(spec['subtasks'])} sub-tasks, split {spec['split']}"
            f"{limited}), scale {spec['scale']}, world seed {spec['world_seed']}{dials}{model}"
        )


def settings(results: Sequence[Results]) -> list[Setting]:
    """Group results by setting, largest group first; of groups as large, what train does not know before."""
    groups: dict[str, list[Setting]] = {}
    for run in results:
        shared = canonical_json({k: v for k, v in run["spec"].items() if k not in OF_A_RUN})
        group = groups.setdefault(shared, [])
        place = next((place for place, setting in enumerate(group) if setting.admits(run)), None)
        if place is None:
            group.append(Setting((run,)))
        else:
            group[place] = Setting((*group[place].runs, run))
    return sorted(
        (setting for group in groups.values() for setting in group),
        key=lambda setting: (
            -len(setting.runs),
            (*HEADLINE_SPLITS[:-1], split := setting.spec["split"]).index(split),
        ),
    )


def macro(run: Results, metric: str) -> Estimate | None:
    """Return the macro estimate of a metric, or None if the run does not have it."""
    estimates = run["metrics"].get(metric)
    return estimates["macro"] if estimates else None


def cell(run: Results) -> tuple[str, str, int]:
    """Return method (by name and all hyper-parameters), representation and pool size."""
    spec = run["spec"]
    return canonical_json(spec["method"]), spec["representation"], spec["pool_size"]


def _named(run: Results) -> tuple[str, str]:
    return run["method"]["key"], run["method"]["label"]
