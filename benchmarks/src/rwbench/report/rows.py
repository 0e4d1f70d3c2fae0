"""A row per run: its scores, its recall by step of the proof, where its attention lies, its mistakes and its cost."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pandas as pd
from ruleworld_data.scoring import SELECTIVE

from ..run.books import source_of
from ..score.errors import ERROR_CLASSES, diagnose
from ..score.results import Results, find_samples
from ..score.scoring import ANSWER_METRICS, RECALLS
from ..spec import RunSpec
from .setting import ANSWERS, MAIN_METRIC, Setting, macro
from .tables import MISSING, estimates, interval, percent

METRICS = (*ANSWER_METRICS, *SELECTIVE, *RECALLS, f"step_{RECALLS[0]}")
Cells = Mapping[str, str]


def run_table(setting: Setting, cells: Callable[[Results], Cells]) -> pd.DataFrame:
    """Return a row per run for which ``cells`` gives any (heading -> text); the largest pools and the best first."""
    rows = []
    for size, form, line in product(reversed(setting.sizes), setting.representations, setting.lines):
        run = line.runs.get((form, size))
        if run and (row := cells(run)):
            head = {"method": line.label, "rules": form.upper(), "pool": f"{size:,}"}
            rows.append({**head, **row})
    return pd.DataFrame(rows).fillna(MISSING)


def scores(run: Results) -> Cells:
    """Return id, number of questions and every metric with its interval."""
    failed = f" ({run['n']['failed']} failed)" if run["n"]["failed"] else ""
    head = {"run": run["run_id"], "n": f"{run['n']['scored']:,}{failed}"}
    return head | {name.replace("_", " "): interval(e) for name in METRICS if (e := macro(run, name))}


def by_subtask(setting: Setting, run: Results) -> Cells:
    """Return the lead metric by sub-task, of runs on the largest pools."""
    values = estimates(run, setting.lead)
    names = [name for name in setting.spec["subtasks"] if name in values]
    if run["spec"]["pool_size"] != setting.sizes[-1]:
        return {}
    return {name.replace("_", " "): percent(values[name]["value"]) for name in names}


def by_step(run: Results) -> Cells:
    """Return Recall@1 by step of the proof."""
    steps = run["details"]["by_step"].get(MAIN_METRIC, {})
    return {f"step {name}": percent(e["value"]) for name, e in steps.items()}


def attention(run: Results) -> Cells:
    """Return the mean weight of each step's gold rules at each retrieval, by number of steps; all rules weigh 1."""
    maps = run["measures"].get("rule_attention", {})
    return {
        f"{steps} steps, retrieval {retrieval}": " ".join(f"{weight:.2f}" for weight in row)
        for steps, measured in maps.items()
        for retrieval, (row, n) in enumerate(zip(measured["weights"], measured["n"], strict=True), 1)
        if n
    }


def mistakes(run: Results, folder: Path) -> Cells:
    """Return how many answers of a run in a folder went wrong in which way (`score.errors`), and `outcomes`.

    Of runs on rule books these alone: their rules have no logic to compare an answer with.
    """
    spec, samples = RunSpec.from_dict(run["spec"]), find_samples(folder, run["run_id"])
    if samples is None or spec.on_books:
        return outcomes(run)
    source, split = source_of(spec), spec.split
    subtasks = {sample["subtask"] for sample in samples}
    steps = {q.id: q.row["steps"] for name in subtasks for q in source.questions(name, split)}
    gold = sorted({rule for sample in samples for step in sample["gold_rules"] for rule in step})
    rules = {row["id"]: row for row in source.rules(split).take(gold).to_pylist()}
    found = [diagnose(sample, steps[sample["id"]], rules) for sample in samples if sample["id"] in steps]
    counts = Counter(diagnosis.error for diagnosis in found if diagnosis)
    named = {name.replace("_", " "): f"{counts[name]:,}" for name in ERROR_CLASSES if counts[name]}
    return {**named, **outcomes(run)}


def outcomes(run: Results) -> Cells:
    """Return how many questions ended in another way than the method should."""
    return {name.replace("_", " "): f"{n:,}" for name, n in run["outcomes"].items() if name != "ok"}


def cost(run: Results) -> Cells:
    """Return calls, tokens and seconds a question."""
    seconds, scored = run["timing"]["seconds"], run["n"]["scored"]
    row = {name.replace("_", " "): f"{usage['mean']:,.4g}" for name, usage in run["usage"].items()}
    return row | ({"seconds": f"{seconds / scored:,.3g}"} if seconds and scored else {})


def answers(run: Results) -> Cells:
    """Return the share of right answers."""
    return {"exact match in %": interval(macro(run, ANSWERS))}


def entropy(run: Results) -> Cells:
    """Return the mean entropy of attention over rules, in nats, by layer."""
    curve = run["measures"].get("rule_entropy")
    pairs = zip(curve["layers"], curve["mean"], strict=True) if curve else ()
    return {f"layer {layer}": f"{nats:.2f}" for layer, nats in pairs}
