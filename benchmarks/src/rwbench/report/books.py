"""Runs on rule books as one table: answers by book, and how often the rule that is needed was found first."""

from __future__ import annotations

from ..score.results import Estimate, Results
from .setting import ANSWERS, MAIN_METRIC, Setting
from .tables import estimates, failure_mark, failure_note, markdown, percent

FOUND = (f"step_{MAIN_METRIC}", MAIN_METRIC)
"""What says how often the needed rule came first: at each step where a method searches at each, else in its search."""
NOTHING = "-"


def book_table(setting: Setting) -> str:
    """Return the answers on all books, on each, and the rules found first, in Markdown, with 95 % intervals."""
    import pandas as pd

    books = setting.spec["subtasks"]
    heads = {"all": "macro"} | {book.replace("_", " "): book for book in books}
    rows = {}
    best_first = sorted(
        setting.methods, key=lambda method: -_right(setting.find(method, "nl", setting.sizes[-1]))
    )
    for method in best_first:
        view, run = setting.methods[method], setting.find(method, "nl", setting.sizes[-1])
        if run is not None:
            found = estimates(run, ANSWERS)
            first, *others = (shown(found.get(part)) for part in heads.values())
            mark = failure_mark(run["n"]["failed"])
            rows[view.label] = [first + mark, *others, shown(found_first(run))]
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=[*heads, "rule found first"])
    sizes = " or ".join(map(str, setting.sizes))
    return (
        "Answers right in % (95 % interval), and how often the rule that a step needs was found first of "
        f"{sizes}{failure_note(setting.runs)}; {setting.title()}.\n\n{markdown(frame)}"
    )


def _right(run: Results | None) -> float:
    """Return the share of right answers; below all for a method that does not answer."""
    found = estimates(run, ANSWERS) if run else {}
    return found["macro"]["value"] if found else -1.0


def found_first(run: Results) -> Estimate | None:
    """Return how often the needed rules came first in a run's searches; None for a run that does not search."""
    return next((found["macro"] for name in FOUND if (found := run["metrics"].get(name))), None)


def shown(estimate: Estimate | None) -> str:
    """Return an estimate as a cell."""
    if estimate is None:
        return NOTHING
    return f"{percent(estimate['value'])} ({percent(estimate['ci_low'])}-{percent(estimate['ci_high'])})"
