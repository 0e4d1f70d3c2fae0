"""Results as tables in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from .io import BuildStats
from .spec import QUESTION_SPLITS, RULE_SPLITS, SUBTASKS


def print_stats(stats: BuildStats) -> None:
    """Print what a build holds."""
    console = _console()
    console.print(
        f"RuleWorld {stats.generator_version}, scale {stats.scale}, seed {stats.seed}, {stats.bytes / 1e6:.1f} MB"
    )
    rules = _table("rules", *RULE_SPLITS)
    for rule_type in stats.rules["train"]:
        rules.add_row(
            rule_type, *(f"{stats.rules.get(split, {}).get(rule_type, 0):,}" for split in RULE_SPLITS)
        )
    rules.add_section()
    rules.add_row("total", *(f"{sum(stats.rules.get(split, {}).values()):,}" for split in RULE_SPLITS))
    console.print(rules)
    questions = _table("questions", *QUESTION_SPLITS, "characters", "counts", "environments", "states")
    for subtask in SUBTASKS:
        types = stats.answer_types[subtask]
        questions.add_row(
            subtask,
            *(f"{stats.rows[subtask].get(split, 0):,}" for split in QUESTION_SPLITS),
            f"{stats.mean_characters[subtask]:.0f}",
            *(_share(types, name) for name in ("count", "environment", "state")),
        )
    questions.add_section()
    total = (sum(stats.rows[s].get(split, 0) for s in SUBTASKS) for split in QUESTION_SPLITS)
    questions.add_row("total", *(f"{count:,}" for count in total), "", "", "", "")
    console.print(questions)
    skeletons = _table("skeleton", "sub-task", *QUESTION_SPLITS)
    for subtask, splits in stats.skeletons.items():
        for name in sorted({name for counts in splits.values() for name in counts}):
            skeletons.add_row(
                name, subtask, *(f"{splits.get(split, {}).get(name, 0):,}" for split in QUESTION_SPLITS)
            )
    console.print(skeletons)


def print_scores(result: dict[str, Any]) -> None:
    """Print the result of `ruleworld_data.scoring.score_predictions`."""
    metrics = ("exact_match", "strict_match", "length_mismatch", "missing_box")
    table = _table("sub-task", "n", "missing", *metrics)
    for name, scores in result["subtasks"].items():
        table.add_row(name, str(scores["n"]), str(scores["missing"]), *(f"{scores[m]:.4f}" for m in metrics))
    table.add_section()
    table.add_row(
        "macro average",
        str(result["n"]),
        str(result["missing"]),
        *(f"{result['macro'][m]:.4f}" for m in metrics),
    )
    console = _console()
    console.print(table)
    if result["paper"] is not None:
        console.print(f"Mean of the paper's six groups (exact_match): {result['paper']['exact_match']:.4f}")
    if result["foreign"]:
        console.print(
            f"Ignored, because they belong to none of these questions: {result['foreign']} predictions."
        )


def _console() -> Console:
    """Return a console wide enough for the tables where no terminal sets the width."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "sub-task" else "right", no_wrap=True)
    return table


def _share(counts: dict[str, int], name: str) -> str:
    total = sum(counts.values())
    return f"{counts.get(name, 0) / total:.1%}" if total else ""
