"""Which figures a setting has, from its results: numbers in, drawings out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..score.results import Estimate, Results
from ..score.scoring import RECALLS
from .charts import Panel, Point, Series, dot_rows, recall_curves
from .measure_charts import CostPoint, HeatMap, LayerCurve, cost_points, heat_maps, layer_lines
from .palette import Style, styles
from .setting import ANSWERS, MAIN_METRIC, MethodView, Setting, details, macro
from .summary import percent

if TYPE_CHECKING:
    from markupsafe import Markup

REPRESENTATION_NAMES = {"fol": "First-order logic (FOL)", "nl": "Natural language (NL)"}
HOPS = {1: "single_rule", 2: "multi_hop_2", 3: "multi_hop_3", 4: "multi_hop_4"}


class Figure(NamedTuple):
    """A drawing with what stands under it; ``folded`` ones open on demand."""

    title: str
    caption: str
    drawing: Markup
    folded: bool = False


def figures(setting: Setting) -> list[Figure]:
    """Return all figures that the setting's results can fill; one without data is not there."""
    n = f"n = {setting.num_questions:,} questions per point"
    largest = setting.sizes[-1]
    found: list[Figure] = []
    for metric, words in (
        (ANSWERS, "Share of sub-questions answered rightly."),
        (MAIN_METRIC, "Share of a question's gold rules among its top K, K being its number of gold rules."),
    ):
        if not _has(setting, metric) or (metric == ANSWERS != setting.lead):
            continue
        name = _name(metric)
        if len(setting.sizes) > 1:
            caption = f"{words} Mean over sub-tasks with equal weight; bands are 95 % intervals; {n}."
            found.append(Figure(f"{name} against pool size", caption, curves(setting, metric)))
        title = f"{name} by sub-task, {largest:,} rules"
        caption = "Whiskers are 95 % intervals. Hover over a dot for its numbers."
        found.append(Figure(title, caption, by_subtask(setting, metric, largest)))
        caption = f"One rule, then chains of two to four steps; bands are 95 % intervals; {largest:,} rules."
        found.append(Figure(f"{name} by hop", caption, by_hop(setting, metric, largest), metric != ANSWERS))
    found += [
        Figure(f"{_name(metric)} against pool size", "", curves(setting, metric), True)
        for metric in RECALLS[1:]
        if _has(setting, metric) and len(setting.sizes) > 1
    ]
    found += _by_detail(setting, largest)
    found += _measured(setting)
    cost = _cost(setting)
    return [*found, cost] if cost is not None else found


def curves(setting: Setting, metric: str) -> Markup:
    """Draw a metric against pool size, one panel per representation."""

    def points(run: Results, view: MethodView) -> dict[str | int, Point]:
        estimate, size = macro(run, metric), run["spec"]["pool_size"]
        return {size: _point(view.label, f"{size:,} rules", estimate)} if estimate else {}

    panels = _panels(setting, setting.sizes, points)
    return recall_curves(panels, f"{_name(metric)} against pool size, by method")


def by_subtask(setting: Setting, metric: str, size: int) -> Markup:
    """Draw every sub-task's value at one pool size."""

    def points(run: Results, view: MethodView) -> dict[str | int, Point]:
        found = run["metrics"].get(metric, {"by_subtask": {}})["by_subtask"]
        return {name: _point(view.label, name, estimate) for name, estimate in found.items()}

    rows = [(name, name.replace("_", " ")) for name in setting.spec["subtasks"]]
    label = f"{_name(metric)} by sub-task with {size} rules, by method"
    return dot_rows(_panels(setting, [size], points), rows, label)


def by_hop(setting: Setting, metric: str, size: int) -> Markup:
    """Draw a metric against the number of hops at one pool size."""

    def points(run: Results, view: MethodView) -> dict[str | int, Point]:
        found = run["metrics"].get(metric, {"by_subtask": {}})["by_subtask"]
        return {n: _point(view.label, f"{n} hops", found[name]) for n, name in HOPS.items() if name in found}

    panels = _panels(setting, [size], points)
    return recall_curves(panels, f"{_name(metric)} by hop, by method", "hops", log=False)


def _by_detail(setting: Setting, size: int) -> list[Figure]:
    """Return Recall@1 by step of the proof and by type of the gold rules, where the results split it."""
    kinds = [details(run, kind) for run in setting.runs for kind in ("by_step", "by_rule_type")]
    if not any(kinds):
        return []

    def steps(run: Results, view: MethodView) -> dict[str | int, Point]:
        return {int(n): _point(view.label, f"step {n}", e) for n, e in details(run, "by_step").items()}

    def types(run: Results, view: MethodView) -> dict[str | int, Point]:
        return {name: _point(view.label, name, e) for name, e in details(run, "by_rule_type").items()}

    caption = (
        f"{size:,} rules; bands are 95 % intervals. One search is held to the question's K for all steps; searches "
        "per step are compared with the gold rules of their step."
    )
    label = "Recall@1 by step of the proof"
    found = [
        Figure(label, caption, recall_curves(_panels(setting, [size], steps), label, "step", log=False), True)
    ]
    names = sorted({name for run in setting.runs for name in details(run, "by_rule_type")})
    if names:
        label = "Recall@1 by rule type"
        caption = f"{size:,} rules; over the questions that need such a rule. Whiskers are 95 % intervals."
        drawing = dot_rows(_panels(setting, [size], types), [(name, name) for name in names], label)
        found.append(Figure(label, caption, drawing, True))
    return found


def _panels(setting: Setting, sizes: list[int], points: Any) -> list[Panel]:
    """Return a panel per representation with a series per method: ``points`` of its runs together."""
    drawn = drawn_styles(setting)
    panels = []
    for representation in setting.representations:
        series = []
        for method, view in setting.methods().items():
            together: dict[str | int, Point] = {}
            for size in sizes:
                run = setting.find(method, representation, size)
                together |= points(run, view) if run else {}
            if together:
                series.append(Series(view.label, drawn[view.key], together))
        panels.append(Panel(REPRESENTATION_NAMES[representation], series))
    return panels


def drawn_styles(setting: Setting) -> dict[str, Style]:
    """Return the style of every method of the setting."""
    return styles(view.key for view in setting.methods().values())


def _measured(setting: Setting) -> list[Figure]:
    """Return the heat maps and entropy curves of runs that measured them."""
    views, drawn = setting.methods(), drawn_styles(setting)
    found: list[Figure] = []
    layers = []
    # One map opens with the page, those of other runs on demand: the method whose steps search, where it is read best.
    runs = sorted(setting.runs, key=lambda r: (r["method"]["key"] != "dynarule", r["spec"]["pool_size"]))
    for run in runs:
        view, measures = views[setting.method_of(run)], run.get("measures", {})
        where = f"{view.label}, {run['spec']['representation'].upper()}, {run['spec']['pool_size']:,} rules"
        if "rule_attention" in measures:
            maps = [
                HeatMap(f"{steps} step{'s' if steps != '1' else ''}", m["weights"], m["n"])
                for steps, m in measures["rule_attention"].items()
            ]
            caption = (
                "Rows: retrievals. Columns: the gold rules of each step, weights summed. All rules of the pool "
                f"weigh 1 together. {where}."
            )
            label = f"Attention on gold rules by step, {where}"
            title, folded = ("Rule attention by step", False) if not found else (label, True)
            found.append(Figure(title, caption, heat_maps(maps, label), folded))
        if "rule_entropy" in measures:
            e = measures["rule_entropy"]
            # FOL and NL of one method share its colour; the dash tells them apart.
            dash = "" if run["spec"]["representation"] == "fol" else "6 3"
            style = replace(drawn[view.key], dash=dash)
            layers.append(LayerCurve(where, style, e["layers"], e["mean"], e["std"]))
    if layers:
        caption = (
            "Entropy of attention over the rules in nats, mean over heads, tokens and questions; bands are one "
            "standard deviation over questions; solid FOL, dashed NL. The confidence layer has the lowest mean: "
            + "; ".join(f"{c.label}, layer {c.layers[c.mean.index(min(c.mean))]}" for c in layers)
            + "."
        )
        found.append(Figure("Attention entropy by layer", caption, layer_lines(layers, "Entropy by layer")))
    return found


def _cost(setting: Setting) -> Figure | None:
    """Return accuracy against tokens per question, or against seconds where no run counts tokens."""
    metric = setting.lead
    runs = [run for run in setting.runs if macro(run, metric)]
    by_tokens = any(_tokens(run) for run in runs)
    unit = (
        "tokens per question (prompt and answer, log scale)"
        if by_tokens
        else "seconds per question (log scale)"
    )
    views, drawn = setting.methods(), drawn_styles(setting)
    points = []
    for run in runs:
        cost = _tokens(run) if by_tokens else run["timing"]["seconds"] / max(run["n"]["scored"], 1)
        if cost > 0:
            view, value = views[setting.method_of(run)], run["metrics"][metric]["macro"]["value"]
            spec = run["spec"]
            title = (
                f"{view.label}, {spec['representation'].upper()}, {spec['pool_size']:,} rules: "
                f"{percent(value)} % at {cost:,.3g} {unit.split(' ')[0]} per question"
            )
            points.append(CostPoint(drawn[view.key], cost, value, title))
    if len(points) < 2:
        return None
    caption = "One mark per run: method, representation and pool size (hover to see which)."
    if not by_tokens:
        caption += " Time of this machine; encoding that runs share falls on the first."
    return Figure(
        f"Cost against {_name(metric).lower()}", caption, cost_points(points, unit, "Cost and accuracy")
    )


def _tokens(run: Results) -> float:
    usage = run.get("usage", {})
    return sum(usage[name]["mean"] for name in ("prompt_tokens", "completion_tokens") if name in usage)


def _has(setting: Setting, metric: str) -> bool:
    return any(macro(run, metric) for run in setting.runs)


def _name(metric: str) -> str:
    return metric.replace("_", " ").capitalize()


def _point(label: str, where: str, estimate: Estimate) -> Point:
    low, high = percent(estimate["ci_low"]), percent(estimate["ci_high"])
    value = percent(estimate["value"])
    title = f"{label}, {where}: {value} % (95 % interval {low} to {high}, n = {estimate['n']})"
    return Point(estimate["value"], estimate["ci_low"], estimate["ci_high"], title)
