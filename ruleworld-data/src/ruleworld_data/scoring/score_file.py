"""Scoring a predictions file against generated gold answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..generate import question_table
from ..spec import QUESTION_SPLITS, SUBTASKS, check_name
from .predictions import read_predictions, score_predictions


def score_file(
    path: Path, split: str, subtasks: list[str] | None, scale: str, seed: int, allow_missing: bool
) -> dict[str, Any]:
    """Score a predictions file; without ``subtasks``, on the sub-tasks that its ids name.

    Raises
    ------
    FileNotFoundError, ValueError
        For a bad file, or ids that do not fit the questions.
    """
    check_name("split", split, QUESTION_SPLITS)
    for subtask in subtasks or []:
        check_name("sub-task", subtask, SUBTASKS)
    predictions = read_predictions(path)
    named = {question_id.split("-", 1)[0] for question_id in predictions}
    chosen = [name for name in SUBTASKS if (name in subtasks if subtasks else name in named)]
    if not chosen:
        first = next(iter(predictions), None)
        raise ValueError(
            f"no id in {path} names a sub-task (first id: {first!r}); ids look like 'multi_hop_3-test-0000007'"
        )
    rows: list[dict[str, Any]] = []
    for subtask in chosen:
        table = question_table(subtask, split, scale, seed).select(["id", "subtask", "answers", "fold"])
        rows += table.to_pylist()
    return score_predictions(rows, predictions, allow_missing=allow_missing)
