"""How much could be answered without the rules: shortcuts in the questions, and memory of train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..io.builds import read_build
from ..scoring.memory import memory
from ..scoring.shortcuts import SHORTCUT_BAR, bars, shortcuts
from .report import printable


def leak_report(build_dir: str | Path) -> dict[str, Any]:
    """Measure what a build gives away; that no question is there twice or taught by train, `verify` checks.

    Parameters
    ----------
    build_dir : path
        A folder made by ``ruleworld build``.

    Returns
    -------
    dict
        Ready for JSON:

        - ``shortcuts``: what partial knowledge scores on test, see `ruleworld_data.scoring.shortcuts.shortcuts`;
        - ``above_bar``: of those, shortcut -> sub-task -> score where that is above `scoring.shortcuts.bars`;
        - ``memory``: what memory of train scores by split, see `ruleworld_data.scoring.memory.memory`.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If it is damaged.
    """
    folder = Path(build_dir)
    read_build(folder)
    scores, limits = shortcuts(folder), bars(folder)
    above = {
        shortcut: {name: score for name, score in own.items() if score > limits.get(name, 1)}
        for shortcut, own in scores.items()
    }
    above = {shortcut: own for shortcut, own in above.items() if own}
    return {"folder": str(folder), "shortcuts": scores, "above_bar": above, "memory": memory(folder)}


def render_leaks(report: dict[str, Any]) -> str:
    """Render a leak report for a terminal."""
    bar = f"bar {SHORTCUT_BAR:.0%} and chance"
    lines = [
        f"{report['folder']}: what partial knowledge scores on test, mean over sub-tasks and highest ({bar}):"
    ]
    for name, scores in report["shortcuts"].items():
        above = ", ".join(f"{task} {score:.1%}" for task, score in report["above_bar"].get(name, {}).items())
        lines.append(
            f"  {name:26}{scores['all']:6.1%} {max(scores.values()):6.1%}  "
            + (f"above the bar: {above}" if above else "passes in every sub-task")
        )
    lines += ["", "what memory of train scores without a rule, mean over sub-tasks and each:"]
    lines += [
        f"  {split:12}{probe:26}" + " ".join(f"{score:6.1%}" for score in scores.values())
        for probe, splits in report["memory"].items()
        for split, scores in splits.items()
    ]
    return "\n".join(map(printable, lines))
