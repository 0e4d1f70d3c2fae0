"""Tables of the page: cells with what sorts them, what stands small beside them, and how dark they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..run.folder import natural_order
from ..score.errors import ERROR_CLASSES
from ..score.results import Estimate, Results
from ..score.samples import OUTCOMES
from ..score.scoring import ANSWER_METRICS, RECALLS
from .paper import PaperTable
from .setting import MAIN_METRIC, Setting, macro
from .tables import TIMES_CAPTION, estimates, percent, times_frame

TABLE_METRICS = (*ANSWER_METRICS, *RECALLS, f"expected_{RECALLS[0]}", f"step_{RECALLS[0]}")


class GridCell(NamedTuple):
    """A cell: its text, the number it is sorted by (None: by its text), what stands beside it, hover text, shade."""

    text: str
    sort: float | None = None
    note: str = ""
    tip: str = ""
    shade: float | None = None


class GridRow(NamedTuple):
    """A row, and the values by which the page filters it: FOL or NL, and the pool size."""

    cells: Sequence[GridCell]
    rules: str = ""
    pool: int | None = None


class Grid(NamedTuple):
    """A table of the page."""

    columns: Sequence[str]
    rows: Sequence[GridRow]
    title: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [
            any(row.cells[place].sort is not None for row in self.rows) for place in range(len(self.columns))
        ]


MISSING = GridCell("–", -1)


def share(estimate: Estimate | None) -> GridCell:
    """Return an estimate as a cell: percentage and 95 % interval."""
    if estimate is None:
        return MISSING
    interval = f"{percent(estimate['ci_low'])}–{percent(estimate['ci_high'])}"
    return GridCell(percent(estimate["value"]), estimate["value"], interval)


def shaded(estimate: Estimate | None) -> GridCell:
    """Return an estimate as a narrow cell, the darker the larger; its interval on hover."""
    if estimate is None:
        return MISSING
    value = estimate["value"]
    # 100 and 0 only where they are exact.
    text = f"{min(100 * value, 99):.0f}" if value < 1 else "100"
    tip = f"{percent(value)} % (95 % interval {share(estimate).note}, n = {estimate['n']})"
    return GridCell("<1" if text == "0" and value > 0 else text, value, tip=tip, shade=value)


def number(value: float | None, form: str = ",.4g") -> GridCell:
    """Return a number as a cell."""
    return MISSING if value is None or value != value else GridCell(f"{value:{form}}", value)


def by_part(setting: Setting, metric: str, size: int, parts: Mapping[str, str]) -> list[Grid]:
    """Return a table per representation: a row per method, a shaded column per part (key in `estimates` -> heading)."""
    grids = []
    for form in setting.representations:
        rows = []
        for method, view in setting.methods.items():
            run = setting.find(method, form, size)
            found = estimates(run, metric) if run else {}
            if found:
                rows.append(GridRow([GridCell(view.label), *(shaded(found.get(part)) for part in parts)]))
        grids.append(Grid(["Method", *parts.values()], rows, FORM_TITLES[form]))
    return grids


FORM_TITLES = {"fol": "First-order logic (FOL)", "nl": "Natural language (NL)"}


def _of_runs(
    setting: Setting,
    cells: Callable[[Results], Mapping[str, GridCell]],
    order: Callable[[str], Any] = str,
    empty: GridCell = MISSING,
) -> Grid:
    """Return a table with a row per run for which ``cells`` gives any (heading -> cell); the largest pools first."""
    places = {method: place for place, method in enumerate(setting.methods)}
    found = []
    for run in setting.runs:
        if row := cells(run):
            form, pool = run["spec"]["representation"].upper(), run["spec"]["pool_size"]
            found.append((-pool, form, places[setting.method_of(run)], setting.view(run).label, row))
    heads = sorted({head for *_, row in found for head in row}, key=order)
    rows = []
    for size, form, _, label, row in sorted(found, key=lambda each: each[:3]):
        first = [GridCell(label), GridCell(form), number(-size, ",")]
        rows.append(GridRow([*first, *(row.get(head, empty) for head in heads)], form, -size))
    return Grid(["Method", "Rules", "Pool", *(head.replace("_", " ") for head in heads)], rows)


def all_runs(setting: Setting) -> Grid:
    """Return every run with its metrics."""
    titles = {name: f"{name.replace('_', ' ').capitalize()}, %" for name in TABLE_METRICS}

    def cells(run: Results) -> dict[str, GridCell]:
        failed = run["n"]["failed"]
        scored = number(run["n"]["scored"], ",")._replace(note=f"({failed} failed)" if failed else "")
        found = {title: share(each) for name, title in titles.items() if (each := macro(run, name))}
        return found | {"n": scored, "Run": GridCell(run["run_id"])}

    return _of_runs(setting, cells, [*titles.values(), "n", "Run"].index)


def error_counts(setting: Setting, counted: Mapping[str, Mapping[str, int]]) -> Grid | None:
    """Return how answers go wrong, None if none does: error classes by run id (``counted``), and outcomes."""
    outcomes = {name: name for name in OUTCOMES if name != "ok"} | {"failed": "failed (outcome)"}

    def cells(run: Results) -> dict[str, GridCell]:
        ends = {outcomes[name]: n for name, n in run["outcomes"].items() if name in outcomes}
        return {name: number(n, "d") for name, n in {**counted.get(run["run_id"], {}), **ends}.items()}

    found = _of_runs(setting, cells, [*ERROR_CLASSES, *outcomes.values()].index, number(0, "d"))
    return None if set(found.columns[3:]) <= {"correct"} else found


def by_step_and_type(setting: Setting) -> Grid:
    """Return Recall@1 by step of the proof and by type of the gold rules, where the results split it."""

    def cells(run: Results) -> dict[str, GridCell]:
        details = run["details"]
        steps = {f"step {name}": e for name, e in details["by_step"].get(MAIN_METRIC, {}).items()}
        found = steps | details.get("by_rule_type", {}).get(MAIN_METRIC, {})
        return {name: share(each)._replace(shade=each["value"]) for name, each in found.items()}

    return _of_runs(setting, cells, lambda name: (not name.startswith("step "), natural_order(name)))


def usage(setting: Setting) -> Grid:
    """Return what a question cost, mean by run."""
    return _of_runs(
        setting, lambda run: {name: number(found["mean"]) for name, found in run["usage"].items()}
    )


def times(setting: Setting) -> Grid:
    """Return what the time went to, by method."""
    frame = times_frame(setting)
    rows = [
        GridRow([GridCell(label), *(number(value, ",.1f") for value in values)])
        for label, values in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    return Grid(["Method", *frame.columns], rows, f"{TIMES_CAPTION}.")


def attention(weights: Sequence[Sequence[float]], n: Sequence[int], title: str) -> Grid:
    """Return mean attention on the gold rules of every step (columns) at every retrieval (rows)."""
    rows = [
        GridRow(
            [
                GridCell(f"step {step + 1}"),
                *(_weight(value, step, place, n[step]) for place, value in enumerate(row)),
            ]
        )
        for step, row in enumerate(weights)
        if n[step]
    ]
    return Grid(["", *(f"gold {place + 1}" for place in range(len(weights)))], rows, title)


def _weight(value: float, step: int, gold: int, n: int) -> GridCell:
    tip = f"retrieval {step + 1} gives the gold rules of step {gold + 1} the weight {value:.3f} (n = {n})"
    return GridCell(f"{value:.2f}", value, tip=tip, shade=min(max(value, 0.0), 1.0))


def beside_paper(table: PaperTable) -> Grid:
    """Return one of the paper's tables: ours, and the paper's number beside it."""
    words = percent if table.unit == "%" else "{:.1f}".format
    rows = []
    for row in table.rows:
        cells = []
        for cell in row.cells:
            ours, theirs = ("–" if value is None else words(value) for value in (cell.ours, cell.paper))
            cells.append(GridCell(ours, -1 if cell.ours is None else cell.ours, theirs))
        rows.append(GridRow([number(row.pool_size, ","), GridCell(row.method), GridCell(row.ours), *cells]))
    return Grid(["Pool", "In the paper", "Ours", *table.columns], rows)
